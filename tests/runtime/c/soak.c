#include "soak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocations.h"

void soak_must(mllm_status status, const mllm_error *error) {
  if (status == MLLM_OK) return;
  (void)fprintf(stderr, "%s: error: %s [%s]\n", error->location, error->message, error->code);
  exit(2);
}

void soak_open(soak *s, const char *path) {
  mllm_error error = {0};
  const mllm_bundle_options any = {.flags = MLLM_ALLOW_UNSIGNED, .threads = 1};
  const mllm_session_options one = {.threads = 1};
  soak_must(mllm_bundle_open(path, &any, &s->bundle, &error), &error);
  soak_must(mllm_bundle_model(s->bundle, NULL, &s->model, &error), &error);
  soak_must(mllm_session_create(s->model, &one, &s->session, &error), &error);
  soak_must(mllm_generator_create(s->bundle, s->model, s->session, &s->generator, &error), &error);
}

void soak_close(soak *s) {
  mllm_generator_destroy(s->generator);
  mllm_session_destroy(s->session);
  mllm_model_destroy(s->model);
  mllm_bundle_close(s->bundle);
}

uint64_t soak_random(uint64_t *state) {
  *state += 0x9E3779B97F4A7C15u;
  uint64_t z = *state;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

void soak_ask(question *q, uint32_t words, uint32_t fewest, uint32_t most, uint64_t *state) {
  static const char *const known[] = {"the ", "meeting ", "is ", "on ", "who ", "user ", "12 ", "and "};
  const uint32_t count = 1 + (uint32_t)(soak_random(state) % words);
  *q = (question){0};
  for (uint32_t i = 0; i < count && strlen(q->text) + 16 < sizeof q->text; i++)
    strcat(q->text, known[soak_random(state) % 8]);
  q->prompt.text = q->text;
  q->options.max_new_tokens = fewest + (uint32_t)(soak_random(state) % (most - fewest + 1));
  q->options.temperature = soak_random(state) % 2 == 0 ? 0.0 : 1.5;
  q->options.seed = soak_random(state);
  q->options.drafts = soak_random(state) % 4 == 0 ? 3 : 0;
}

void soak_answer(soak *s, question *q) {
  mllm_error error = {0};
  q->answer = SOAK_EMPTY;
  soak_must(mllm_generate_start(s->generator, &q->prompt, &q->options, &error), &error);
  for (mllm_piece piece = {0};;) {
    mllm_allocations_forbid(1);
    const mllm_status status = mllm_generate_next(s->generator, &piece, &error);
    mllm_allocations_forbid(0);
    soak_must(status, &error);
    if (piece.token == MLLM_NO_TOKEN) return;
    q->answer = soak_add(q->answer, piece.token);
  }
}

uint64_t soak_add(uint64_t digest, uint32_t token) { return (digest ^ token) * 1099511628211u; }

uint64_t soak_resident(void) {
  unsigned long long whole = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%llu %llu", &whole, &resident) != 2) exit(2);
  (void)fclose(file);
  return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

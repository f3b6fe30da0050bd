/* Counts what a generation allocates: prints "<calls while a prompt is read> <calls while tokens come>".
 *
 *   count_allocations BUNDLE PROMPT TOKENS
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "mllm.h"

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);

static volatile unsigned long calls;

void *malloc(size_t size) {
  calls++;
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  calls++;
  return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
  calls++;
  return __libc_realloc(memory, size);
}

static int fail(const mllm_error *error) {
  (void)fprintf(stderr, "%s: %s [%s]\n", error->location, error->message, error->code);
  return 1;
}

int main(int argc, char **argv) {
  const mllm_bundle_options bundle_options = {.flags = MLLM_ALLOW_UNSIGNED, .threads = 1};
  const mllm_session_options session_options = {.threads = 1};
  mllm_error error;
  mllm_bundle *bundle;
  mllm_model *model;
  mllm_session *session;
  mllm_generator *generator;
  if (argc != 4) return 2;
  if (mllm_bundle_open(argv[1], &bundle_options, &bundle, &error) != MLLM_OK) return fail(&error);
  if (mllm_bundle_model(bundle, NULL, &model, &error) != MLLM_OK) return fail(&error);
  if (mllm_session_create(model, &session_options, &session, &error) != MLLM_OK)
    return fail(&error);
  if (mllm_generator_create(bundle, model, session, &generator, &error) != MLLM_OK)
    return fail(&error);
  const mllm_prompt prompt = {.text = argv[2]};
  const mllm_generate_options options = {
      .max_new_tokens = (uint32_t)atoi(argv[3]), .temperature = 3.0, .top_p = 0.9, .seed = 1};
  const unsigned long before = calls;
  if (mllm_generate_start(generator, &prompt, &options, &error) != MLLM_OK) return fail(&error);
  const unsigned long read = calls;
  unsigned int tokens = 0;
  mllm_piece piece = {0};
  while (piece.token != MLLM_NO_TOKEN) {
    if (mllm_generate_next(generator, &piece, &error) != MLLM_OK) return fail(&error);
    tokens++;
  }
  const unsigned long done = calls;
  (void)printf("%lu %lu %u\n", read - before, done - read, tokens - 1);
  mllm_generator_destroy(generator);
  mllm_session_destroy(session);
  mllm_model_destroy(model);
  mllm_bundle_close(bundle);
  return 0;
}

/* Many steps over many conversations at a time: memory does not grow, and every answer is the one
 * that its question has alone, where no step allocates.
 *
 *     soak_steps BUNDLE STEPS CONVERSATIONS
 *
 * When a conversation ends another takes its place. A tenth of the steps warms up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soak.h"

enum { QUESTIONS = 64, FEWEST = 8, MOST = 24 };

/* A conversation that runs, in the row that its number points to. */
typedef struct row {
  uint32_t number;
  uint32_t question;
  uint64_t digest;
} row;

typedef struct run {
  soak soak;
  question questions[QUESTIONS];
  mllm_schedule *schedule;
  row *rows;
  uint32_t n_rows;
  uint64_t state;
  uint64_t answers;
} run;

static void fail(const char *what) {
  (void)fprintf(stderr, "%s\n", what);
  exit(1);
}

static void add(run *r) {
  mllm_error error = {0};
  uint32_t number = 0;
  const uint32_t asked = (uint32_t)(soak_random(&r->state) % QUESTIONS);
  const question *q = &r->questions[asked];
  soak_must(mllm_schedule_add(r->schedule, &q->prompt, &q->options, MLLM_PRIORITY_NORMAL, &number,
                              &error), &error);
  row *found = &r->rows[number % r->n_rows];
  if (found->number != MLLM_NO_TOKEN) fail("a conversation never ended");
  *found = (row){number, asked, SOAK_EMPTY};
}

/* One token or end of a conversation. */
static void step(run *r) {
  mllm_error error = {0};
  mllm_turn turn;
  soak_must(mllm_schedule_next(r->schedule, &turn, &error), &error);
  if (turn.error.status != MLLM_OK) soak_must(turn.error.status, &turn.error);
  row *found = &r->rows[turn.conversation % r->n_rows];
  if (found->number != turn.conversation) fail("a conversation that is not there took its turn");
  if (turn.piece.token != MLLM_NO_TOKEN) {
    found->digest = soak_add(found->digest, turn.piece.token);
    return;
  }
  if (found->digest != r->questions[found->question].answer) fail("an answer is not its own");
  r->answers++;
  found->number = MLLM_NO_TOKEN;
  add(r);
}

int main(int argc, char **argv) {
  static run r;
  if (argc != 4) return 2;
  const uint64_t steps = strtoull(argv[2], NULL, 10);
  const uint32_t conversations = (uint32_t)strtoul(argv[3], NULL, 10);
  mllm_error error = {0};
  soak_open(&r.soak, argv[1]);
  for (int i = 0; i < QUESTIONS; i++) {
    soak_ask(&r.questions[i], 4, FEWEST, MOST, &r.state);
    soak_answer(&r.soak, &r.questions[i]);
  }
  r.n_rows = 64 * conversations;
  r.rows = malloc(r.n_rows * sizeof *r.rows);
  if (r.rows == NULL) return 2;
  memset(r.rows, 0xFF, r.n_rows * sizeof *r.rows);
  const mllm_schedule_options options = {.conversations = conversations};
  soak_must(mllm_schedule_create(r.soak.generator, &options, &r.schedule, &error), &error);
  for (uint32_t i = 0; i < conversations; i++) add(&r);
  uint64_t warm = 0, most = 0;
  while (mllm_schedule_count(r.schedule).steps < steps) {
    for (int i = 0; i < 1000; i++) step(&r);
    const uint64_t now = soak_resident();
    if (mllm_schedule_count(r.schedule).steps < steps / 10) warm = now;
    if (now > most) most = now;
  }
  const mllm_schedule_counters counted = mllm_schedule_count(r.schedule);
  (void)printf("{\"steps\": %llu, \"answers\": %llu, \"at_a_time\": %u, "
               "\"resident_bytes\": %llu, \"growth_bytes\": %llu}\n",
               (unsigned long long)counted.steps, (unsigned long long)r.answers, counted.most,
               (unsigned long long)most,
               (unsigned long long)(most > warm ? most - warm : 0));
  mllm_schedule_destroy(r.schedule);
  soak_close(&r.soak);
  free(r.rows);
  return 0;
}

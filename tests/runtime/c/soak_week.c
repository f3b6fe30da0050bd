/* A week of meetings on a virtual clock: people ask about frames of them, long questions and short,
 * many at the start of an hour; some leave before the answer is whole. There is room for a few.
 *
 *     soak_week BUNDLE DAYS [prepares]
 *
 * What is held: each whole answer is the one that its question has alone, in a session that serves
 * nobody else; counts add up; caches stay in their bounds; nothing is copied between stages. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mllm_devices.h"
#include "mllm_kv.h"
#include "soak.h"

enum { QUESTIONS = 24, LIVE = 64, SIDE = 72, FRAMES = 6, ROOM = 8, PAGES = 6, DAY = 24 * 3600 };
static const double step_seconds = 0.05, chunk_seconds = 0.4;

typedef struct talk {
  uint32_t number; /* MLLM_NO_TOKEN: nobody */
  uint32_t question;
  uint32_t tokens;
  uint64_t digest;
  double leaves; /* when who asked has had enough */
} talk;

typedef struct week {
  soak soak;
  question questions[QUESTIONS];
  uint8_t frames[FRAMES][SIDE * SIDE * 3];
  mllm_schedule *schedule;
  talk talks[LIVE];
  double now;
  uint64_t state, chunks, room;
  uint32_t live, asked, turned_away, left, whole, waited;
} week;

static void must_hold(int holds, const char *what) {
  if (holds) return;
  (void)fprintf(stderr, "%s\n", what);
  exit(1);
}

static double exponential(week *w, double mean) {
  return -mean * log(((double)(soak_random(&w->state) >> 11) + 0.5) * 0x1p-53);
}

/* Seconds until somebody asks again: office hours on weekdays, hardly anybody else. */
static double pause(week *w) {
  const double hour = fmod(w->now, DAY) / 3600.0;
  const int weekday = fmod(w->now, 7.0 * DAY) < 5.0 * DAY;
  return exponential(w, weekday && hour >= 9.0 && hour < 17.0 ? 120.0 : 3.0 * 3600.0);
}

static void prepare(week *w) {
  for (int f = 0; f < FRAMES; f++)
    for (size_t i = 0; i < sizeof w->frames[f]; i++) w->frames[f][i] = (uint8_t)soak_random(&w->state);
  for (uint32_t i = 0; i < QUESTIONS; i++) {
    question *q = &w->questions[i];
    soak_ask(q, i % 4 == 0 ? 200 : 8, 1, 24, &w->state);
    q->prompt.rgb = w->frames[i % FRAMES];
    q->prompt.width = q->prompt.height = SIDE;
    soak_answer(&w->soak, q);
  }
  for (int i = 0; i < LIVE; i++) w->talks[i].number = MLLM_NO_TOKEN;
}

static talk *find(week *w, uint32_t number) {
  for (int i = 0; i < LIVE; i++)
    if (w->talks[i].number == number) return &w->talks[i];
  return NULL;
}

static void ask(week *w) {
  mllm_error error = {0};
  talk *t = find(w, MLLM_NO_TOKEN);
  if (t == NULL) {
    w->turned_away++;
    return;
  }
  const uint32_t chosen = (uint32_t)(soak_random(&w->state) % QUESTIONS);
  const question *q = &w->questions[chosen];
  const mllm_priority priority = (mllm_priority)(soak_random(&w->state) % 3);
  uint32_t number;
  soak_must(mllm_schedule_add(w->schedule, &q->prompt, &q->options, priority, &number, &error),
            &error);
  const int patient = soak_random(&w->state) % 8 != 0;
  *t = (talk){number, chosen, 0, SOAK_EMPTY, w->now + (patient ? 1e9 : exponential(w, 10.0))};
  w->asked++;
  w->live++;
}

static void leave(week *w) {
  for (int i = 0; i < LIVE; i++) {
    talk *t = &w->talks[i];
    if (t->number == MLLM_NO_TOKEN || t->leaves > w->now) continue;
    mllm_schedule_end(w->schedule, t->number);
    t->number = MLLM_NO_TOKEN;
    w->left++;
    w->live--;
  }
}

static void turn(week *w) {
  mllm_error error = {0};
  mllm_turn turn;
  soak_must(mllm_schedule_next(w->schedule, &turn, &error), &error);
  soak_must(turn.error.status, &turn.error);
  const mllm_schedule_counters c = mllm_schedule_count(w->schedule);
  w->now += step_seconds + chunk_seconds * (double)(c.chunks - w->chunks);
  w->chunks = c.chunks;
  w->waited += c.waiting > 0;
  must_hold(c.running <= ROOM, "more conversations run than may");
  must_hold(c.most_bytes <= w->room, "caches take more than there is room for");
  must_hold(c.running + c.waiting == w->live, "conversations are lost");
  talk *t = find(w, turn.conversation);
  must_hold(t != NULL, "somebody who is not there took a turn");
  const int ended = turn.piece.token == MLLM_NO_TOKEN;
  if (!ended) t->digest = soak_add(t->digest, turn.piece.token);
  t->tokens += !ended;
  must_hold(turn.statistics.new_tokens == t->tokens, "tokens are counted wrong");
  must_hold(turn.statistics.copied_bytes == 0, "bytes were copied between stages");
  if (!ended) return;
  must_hold(t->digest == w->questions[t->question].answer, "an answer is not its own");
  t->number = MLLM_NO_TOKEN;
  w->whole++;
  w->live--;
}

int main(int argc, char **argv) {
  static week w;
  if (argc < 3) return 2;
  const double end = strtod(argv[2], NULL) * DAY;
  mllm_error error = {0};
  soak_open(&w.soak, argv[1]);
  prepare(&w);
  soak alone = w.soak; /* the schedule has a session to itself */
  const mllm_session_options one = {.threads = 1};
  soak_must(mllm_session_create(alone.model, &one, &w.soak.session, &error), &error);
  soak_must(mllm_generator_create(alone.bundle, alone.model, w.soak.session, &w.soak.generator,
                                  &error), &error);
  w.room = PAGES * mllm_cache_bytes(alone.model, 0, 1);
  const mllm_schedule_options options = {
      .conversations = ROOM, .cache_bytes = w.room, .prepares = argc > 3};
  soak_must(mllm_schedule_create(w.soak.generator, &options, &w.schedule, &error), &error);
  double next = 9.0 * 3600.0;
  uint64_t first_day = 0;
  while (w.now < end) {
    if (w.live == 0) w.now = next;
    for (; next <= w.now; next += pause(&w)) {
      const uint64_t crowd = soak_random(&w.state) % 16 == 0 ? 12 : 1; /* a meeting begins */
      for (uint64_t i = 0; i < crowd; i++) ask(&w);
    }
    leave(&w);
    if (w.live > 0) turn(&w);
    if (w.now < DAY) first_day = soak_resident();
  }
  const uint64_t growth = soak_resident() > first_day ? soak_resident() - first_day : 0;
  must_hold(w.asked == w.whole + w.left + w.live, "conversations do not add up");
  const uint64_t steps = mllm_schedule_count(w.schedule).steps;
  mllm_schedule_destroy(w.schedule);
  mllm_generator_destroy(w.soak.generator);
  mllm_session_destroy(w.soak.session);
  soak_close(&alone);
  (void)printf("{\"asked\": %u, \"whole\": %u, \"left\": %u, \"turned_away\": %u, \"steps\": %llu, "
               "\"chunks\": %llu, \"waited\": %u, \"growth_bytes\": %llu}\n",
               w.asked, w.whole, w.left, w.turned_away, (unsigned long long)steps,
               (unsigned long long)w.chunks, w.waited, (unsigned long long)growth);
  return 0;
}

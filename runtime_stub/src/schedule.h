/* What a schedule keeps of its conversations. */
#ifndef MLLM_SCHEDULE_PARTS_H
#define MLLM_SCHEDULE_PARTS_H

#include "../kv/pool.h"
#include "mllm_schedule.h"
#include "prepare.h"

typedef enum mllm_talk_state { STATE_NEW, STATE_PREPARING, STATE_PREPARED } mllm_talk_state;

/* Without a cache it waits; with one it runs; done, it is only there until the next call. */
typedef struct mllm_talk {
  uint32_t number;
  mllm_priority priority;
  uint64_t due; /* turns that it has had, each as long as its priority says */
  uint32_t need; /* tokens of its cache */
  uint64_t bytes;
  mllm_talk_state state;
  bool sleeps; /* it has a cache, whose pages are in a file: it waits, too */
  mllm_generator *generator;
  mllm_prompt prompt;
  char *text[2]; /* copies that the prompt points to */
  mllm_generate_options options;
} mllm_talk;

struct mllm_schedule {
  mllm_generator *lender;
  mllm_schedule_options options;
  mllm_preparer *preparer; /* or NULL */
  mllm_kv_pool *pool;      /* the pages of all, where there is a bound; else NULL */
  mllm_talk *talks; /* [n_talks] in the order of their numbers */
  uint32_t n_talks;
  uint32_t room;
  uint32_t next_number;
  uint32_t ended; /* the conversation that the next call forgets; MLLM_NO_TOKEN: none */
  uint64_t bytes; /* of the caches that are taken */
  uint64_t now;   /* the due time of the last turn */
  mllm_schedule_counters counters;
};

/* Whether it has a cache that it can use. */
static inline bool mllm_talk_runs(const mllm_talk *talk) {
  return talk->generator->cache != NULL && !talk->sleeps;
}

void mllm_talk_free(mllm_schedule *schedule, mllm_talk *talk);

/* Gives caches to those that wait, as long as there is room; none is passed over for a smaller
 * one. */
void mllm_schedule_admit(mllm_schedule *schedule);

#endif

/* mllm_schedule.h - several conversations over one session, which take turns. */
#ifndef MLLM_SCHEDULE_H
#define MLLM_SCHEDULE_H

#include "mllm.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

typedef struct mllm_schedule mllm_schedule;

typedef struct mllm_schedule_options {
  uint32_t conversations; /* at most, at a time; 0: 16 */
  /* of all their caches, in one pool, where prompts that begin alike share what was read; 0: no bound,
   * and a cache each */
  uint64_t cache_bytes;
  /* 1: a thread with a session of its own prepares the next prompt, its image, ids and embeddings,
   * while others run; pixels are then read outside of calls. 0: its first turn does */
  uint32_t prepares;
  /* with cache_bytes: a folder for a file of at most spill_bytes, where conversations sleep as long as
   * more urgent ones need their room; NULL: those wait */
  const char *spill_folder;
  uint64_t spill_bytes;
} mllm_schedule_options;

/* What happened: a token of a conversation, its end, or its fault. */
typedef struct mllm_turn {
  uint32_t conversation; /* MLLM_NO_TOKEN: no conversation is left */
  mllm_piece piece;      /* with MLLM_NO_TOKEN the answer is whole; until the next call */
  mllm_statistics statistics;
  mllm_error error; /* its status is MLLM_OK, or the conversation ended so; others go on */
} mllm_turn;

typedef struct mllm_schedule_counters {
  uint64_t chunks;     /* of prompts that were read */
  uint64_t steps;      /* calls that gave a token */
  uint64_t most_bytes; /* of caches at a time */
  uint64_t prepared;   /* conversations that were, beside others */
  uint64_t bubbles;    /* times that nothing else was there to do meanwhile */
  uint64_t slept;      /* times that a conversation made room for a more urgent one */
  uint64_t woke;       /* of those, times that it went on */
  uint32_t most;       /* conversations at a time */
  uint32_t waiting;    /* now */
  uint32_t running;    /* now */
} mllm_schedule_counters;

/* The generator lends its session and settings, and serves no one else meanwhile; it outlives the
 * schedule. A model that keeps something beside its cache is refused: a decoder that attends to what
 * an encoder left in the arena, or whose past is padded to buckets. options may be NULL. */
mllm_status mllm_schedule_create(mllm_generator *generator, const mllm_schedule_options *options,
                                 mllm_schedule **schedule, mllm_error *error);
void mllm_schedule_destroy(mllm_schedule *schedule);

/* Adds a conversation; *conversation is its number, which none had before. Before anything is computed
 * it is known what its cache needs, for prompt and answer: more than all may take is refused, and
 * else it waits until there is room. Pixels are read when its turn comes; text and options are
 * copied. A draft model follows one conversation only and is refused. */
mllm_status mllm_schedule_add(mllm_schedule *schedule, const mllm_prompt *prompt,
                              const mllm_generate_options *options, mllm_priority priority,
                              uint32_t *conversation, mllm_error *error);

/* Reads chunks and decodes steps, the one that is due first, until a token is there. A chunk of a
 * prompt and a step of another conversation cost one turn each, so that none waits for a long
 * prompt. Each answer is the one that its conversation gives alone, to the bit. */
mllm_status mllm_schedule_next(mllm_schedule *schedule, mllm_turn *turn, mllm_error *error);

/* Ends a conversation early; a number that is not there any more is no fault. */
void mllm_schedule_end(mllm_schedule *schedule, uint32_t conversation);

mllm_schedule_counters mllm_schedule_count(const mllm_schedule *schedule);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MLLM_SCHEDULE_H */

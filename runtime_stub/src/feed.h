/* Feeding tokens to one entry of a language model: what it takes, by the names of its inputs. */
#ifndef MLLM_FEED_H
#define MLLM_FEED_H

#include <stdbool.h>

#include "mllm.h"
#include "past.h"

typedef struct mllm_feed {
  uint32_t entry;
  int32_t cache;  /* -1: none */
  uint32_t chunk; /* the most tokens of one run */
  uint32_t width; /* of an embedding; 0: it takes ids */
  uint32_t vocabulary;
  const char *tokens;    /* name of the input of ids or embeddings */
  const char *mask;      /* or NULL */
  const char *positions; /* or NULL */
  uint32_t position_rank;
  bool reads_features; /* an input lies where an earlier entry leaves it */
  const char *logits;
  float *own_logits; /* where they have no place in the arena; owned */
  size_t own_bytes;
} mllm_feed;

/* A dim's largest value, -1 where it is more than a symbol. */
int64_t mllm_dim_bound(const mllm_model *model, const mllm_tensor_info *info, uint32_t dim);

/* The first entry with the role, or MLLM_NO_TOKEN. */
uint32_t mllm_entry_of_role(const mllm_model *model, const char *role);

/* past: the tensors that stand for a cache, of which the entry may have none. */
mllm_status mllm_feed_make(mllm_feed *feed, const mllm_model *model, uint32_t entry,
                           const mllm_past *past, mllm_error *error);
void mllm_feed_free(mllm_feed *feed);

/* Working memory of a run. */
typedef struct mllm_feed_memory {
  int64_t *ids;       /* [chunk]: what to feed, where the entry takes ids */
  float *embeddings;  /* [capacity, width]: the prompt, where it takes embeddings; then new tokens */
  float *rows;        /* those of this run, among the embeddings */
  int64_t *positions; /* [chunk] */
  int64_t *ones;      /* [capacity of the cache + chunk], all 1 */
  mllm_past past;
  mllm_tensor *inputs;  /* [3 + past.n_pairs] */
  mllm_tensor *outputs; /* [1 + past.n_pairs] */
} mllm_feed_memory;

/* Runs the entry on `count` tokens behind `past`; *logits are those of the last token. */
mllm_status mllm_feed_run(const mllm_feed *feed, mllm_session *session, mllm_feed_memory *memory,
                          uint32_t count, uint32_t past, const float **logits, mllm_error *error);

#endif

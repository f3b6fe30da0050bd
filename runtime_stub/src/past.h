/* The cache of an entry that has none of its own: it takes past tensors and gives present ones,
 * which the next run takes as its past. */
#ifndef MLLM_PAST_H
#define MLLM_PAST_H

#include <stdbool.h>

#include "json.h"
#include "mllm.h"

/* A past tensor f32 [1, heads, tokens, size], and the output that has the new tokens behind it. */
typedef struct mllm_past_pair {
  mllm_tensor past;
  mllm_tensor present;
  size_t room; /* bytes behind either pointer */
} mllm_past_pair;

typedef struct mllm_past {
  mllm_past_pair *pairs; /* [n_pairs] keys and values of every layer */
  uint32_t n_pairs;      /* 0: the entry takes no past */
  uint32_t capacity;     /* tokens that fit, the new one of the last step included */
} mllm_past;

/* Finds the tensors of an entry by the names in `names`, {"key", "value", "out"} of patterns with
 * {layer} and {kind}; it may be NULL. Takes memory for them at the entry's bounds. */
mllm_status mllm_past_make(mllm_past *past, const mllm_model *model, uint32_t entry,
                           const mllm_json_value *names, mllm_error *error);
void mllm_past_free(mllm_past *past);

/* Whether an input is one of the past tensors. */
bool mllm_past_takes(const mllm_past *past, const char *input);

/* Writes the tensors of a run behind `tokens` tokens to inputs[n_pairs] and outputs[n_pairs]. */
void mllm_past_bind(const mllm_past *past, uint32_t tokens, mllm_tensor *inputs,
                    mllm_tensor *outputs);

/* After a run that gave the outputs: what was present is past. */
void mllm_past_turn(mllm_past *past);

#endif

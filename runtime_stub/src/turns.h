/* turns.h - how a model turns its keys by their position (rotary embeddings), read from its stages. */
#ifndef MLLM_TURNS_H
#define MLLM_TURNS_H

#include <stdbool.h>

#include "program.h"

enum { MLLM_TURN_MOST_CHANNELS = 1024 /* of a head whose keys can be turned again */ };

/* Of the keys of a layer: channel i and its partner turn by position * inv_freq[i]. */
typedef struct mllm_turn_of_keys {
  const float *inv_freq; /* [half]; a weight of the model */
  uint32_t half;
  bool interleaved; /* partners are neighbours; else the second stands half a turn's channels behind */
} mllm_turn_of_keys;

/* [layers] of a cache: the rope stage that gives each layer's keys, the same one in every entry. Without
 * one in any layer, and where positions come in otherwise, *turns is NULL, as it is without memory. */
mllm_status mllm_turns_find(const mllm_program *program, const unsigned char *weights,
                            uint32_t cache, mllm_turn_of_keys **turns, mllm_error *error);

#endif /* MLLM_TURNS_H */

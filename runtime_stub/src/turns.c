/* turns.c - follows the keys that are stored to the stage that turned them. */
#include "turns.h"

#include <stdlib.h>
#include <string.h>

#include "mllm_kernels.h"
#include "status.h"

static bool writes(const mllm_program *program, const mllm_stage_record *stage, uint32_t id) {
  const uint32_t *made = program->arg_ids + stage->first_arg + stage->n_in;
  for (uint32_t i = 0; i < stage->n_out; i++)
    if (made[i] == id) return true;
  return false;
}

/* The last stage of the entry before this one that writes a tensor; NULL: none does. */
static const mllm_stage_record *maker(const mllm_program *program, const mllm_entry_record *entry,
                                      const mllm_stage_record *stage, uint32_t id) {
  const mllm_stage_record *first = program->stages + entry->first_stage;
  while (stage-- > first)
    if (writes(program, stage, id)) return stage;
  return NULL;
}

/* What a rope stage does; inv_freq NULL: the stage is another one, or its frequencies are no weight. */
static mllm_turn_of_keys turn_of(const mllm_program *program, const unsigned char *weights,
                                 const mllm_stage_record *stage, uint32_t head_dim) {
  const mllm_turn_of_keys none = {0};
  if (stage == NULL || program->functions[stage->kernel] != mllm_k_f32_rope || stage->n_in != 3 ||
      stage->n_params != 2)
    return none;
  const uint32_t id = program->arg_ids[stage->first_arg + 2];
  if (id == MLLM_NONE) return none;
  const mllm_tensor_record *made = &program->tensors[id];
  const uint64_t half = made->max_bytes / sizeof(float);
  if (made->storage != MLLM_STORAGE_WEIGHT || made->dtype != MLLM_F32 || half == 0 ||
      2 * half > head_dim || head_dim > MLLM_TURN_MOST_CHANNELS ||
      made->offset % sizeof(float) != 0)
    return none;
  return (mllm_turn_of_keys){.inv_freq = (const void *)(weights + made->offset),
                             .half = (uint32_t)half,
                             .interleaved = program->params[stage->first_param + 1] != 0};
}

static bool same(const mllm_turn_of_keys *a, const mllm_turn_of_keys *b) {
  return a->half == b->half && a->interleaved == b->interleaved &&
         memcmp(a->inv_freq, b->inv_freq, a->half * sizeof(float)) == 0;
}

/* Notes the turn of what a stage stores; false: there is none, or another entry has another one. */
static bool note(const mllm_program *program, const unsigned char *weights,
                 const mllm_entry_record *entry, const mllm_stage_record *stage,
                 mllm_turn_of_keys *turns) {
  const mllm_cache_record *cache = &program->caches[entry->cache];
  const int64_t layer = program->params[stage->first_param];
  if (stage->n_in < 2 || stage->n_params != 2 || layer < 0 || layer >= cache->layers) return false;
  const uint32_t id = program->arg_ids[stage->first_arg];
  const mllm_turn_of_keys found =
      turn_of(program, weights, maker(program, entry, stage, id), cache->head_dim);
  if (found.inv_freq == NULL) return false;
  if (turns[layer].inv_freq != NULL) return same(&turns[layer], &found);
  turns[layer] = found;
  return true;
}

static bool note_all(const mllm_program *program, const unsigned char *weights, uint32_t cache,
                     mllm_turn_of_keys *turns) {
  for (uint32_t e = 0; e < program->counts[MLLM_SECTION_ENTRIES]; e++) {
    const mllm_entry_record *entry = &program->entries[e];
    if (entry->cache != (int32_t)cache) continue;
    for (uint32_t i = 0; i < entry->n_stages; i++) {
      const mllm_stage_record *stage = &program->stages[entry->first_stage + i];
      if (program->functions[stage->kernel] == mllm_k_f32_kv_store &&
          !note(program, weights, entry, stage, turns))
        return false;
    }
  }
  for (uint32_t layer = 0; layer < program->caches[cache].layers; layer++)
    if (turns[layer].inv_freq == NULL) return false;
  return true;
}

mllm_status mllm_turns_find(const mllm_program *program, const unsigned char *weights,
                            uint32_t cache, mllm_turn_of_keys **turns, mllm_error *error) {
  *turns = calloc((size_t)program->caches[cache].layers + 1, sizeof **turns);
  if (*turns == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for turns of keys");
  if (note_all(program, weights, cache, *turns)) return MLLM_OK;
  free(*turns);
  *turns = NULL;
  return MLLM_OK;
}

/* caches.c - cache records: checks, and infos with the tables that they point to. */
#include "caches.h"

#include <stdlib.h>
#include <string.h>

#include "../kv/layout.h"
#include "status.h"

enum { OF_LAYER = 2 /* numbers of a table for each layer */ };

/* recent, then format and scales of each layer; NULL where all layers are f32. */
static const int64_t *table_of(const mllm_program *program, const mllm_cache_record *cache) {
  return cache->formats == 0 ? NULL : program->params + cache->formats - 1;
}

static mllm_cache_info shape_of(const mllm_program *program, const mllm_cache_record *cache) {
  const int64_t *table = table_of(program, cache);
  return (mllm_cache_info){
      .name = mllm_program_string(program, cache->name),
      .layers = cache->layers,
      .kv_heads = cache->kv_heads,
      .head_dim = cache->head_dim,
      .page_tokens = cache->page_tokens,
      .max_tokens = cache->max_tokens,
      .recent = table == NULL ? 0 : (uint32_t)table[0],
  };
}

/* f16 of as many elements as the keys of a layer have channels. */
static bool is_scale(const mllm_program *program, const mllm_cache_record *cache, int64_t id) {
  if (id == -1) return true;
  if (id < 0 || id >= program->counts[MLLM_SECTION_TENSORS]) return false;
  const mllm_tensor_record *tensor = &program->tensors[id];
  return tensor->storage == MLLM_STORAGE_WEIGHT && tensor->dtype == MLLM_F16 &&
         tensor->max_bytes == (uint64_t)cache->kv_heads * cache->head_dim * sizeof(uint16_t);
}

static bool is_table(const mllm_program *program, const mllm_cache_record *cache) {
  const uint64_t first = (uint64_t)cache->formats - 1;
  const uint64_t count = 1 + (uint64_t)cache->layers * OF_LAYER;
  if (first + count > program->counts[MLLM_SECTION_PARAMS]) return false;
  for (uint64_t i = first; i < first + count; i++) {
    if (program->param_kinds[i] != MLLM_PARAM_INT) return false;
  }
  const int64_t *table = table_of(program, cache);
  bool can_fall = true;
  for (uint32_t layer = 0; layer < cache->layers; layer++) {
    const int64_t *row = table + 1 + (size_t)layer * OF_LAYER;
    if (row[0] < MLLM_KV_F32 || row[0] > MLLM_KV_4) return false;
    if (!is_scale(program, cache, row[1])) return false;
    if (row[0] == MLLM_KV_4) {
      can_fall = cache->page_tokens % MLLM_KV_SUB_BLOCK == 0 &&
                 cache->head_dim <= MLLM_KV_MAX_CHANNELS;
    }
  }
  return can_fall && table[0] >= 0 && table[0] <= UINT32_MAX && table[0] % cache->page_tokens == 0;
}

mllm_status mllm_caches_check(const mllm_program *program, mllm_error *error) {
  for (uint32_t i = 0; i < program->counts[MLLM_SECTION_CACHES]; i++) {
    const mllm_cache_record *cache = &program->caches[i];
    const bool named = cache->name < program->counts[MLLM_SECTION_STRINGS];
    const bool symbol = cache->past_symbol == MLLM_NONE ||
                        cache->past_symbol < program->counts[MLLM_SECTION_SYMBOLS];
    const mllm_cache_info shape = {.layers = cache->layers,
                                   .kv_heads = cache->kv_heads,
                                   .head_dim = cache->head_dim,
                                   .page_tokens = cache->page_tokens};
    if (!named || !symbol || cache->max_tokens == 0 || mllm_kv_page_bytes(&shape) == 0 ||
        (cache->formats != 0 && !is_table(program, cache))) {
      return mllm_fail(error, MLLM_INVALID_PROGRAM, MLLM_CODE_PROGRAM,
                       "malformed program: cache %u", i);
    }
  }
  return MLLM_OK;
}

/* Half floats [layers, kv_heads, head_dim]; 1 where a layer has no scales. */
static void gather_scales(const mllm_program *program, const unsigned char *weights,
                          const mllm_cache_record *cache, uint16_t *scales) {
  static const uint16_t one = 0x3C00;
  const size_t channels = (size_t)cache->kv_heads * cache->head_dim;
  const int64_t *row = table_of(program, cache) + 1;
  for (uint32_t layer = 0; layer < cache->layers; layer++, row += OF_LAYER, scales += channels) {
    if (row[1] >= 0) {
      memcpy(scales, weights + program->tensors[row[1]].offset, channels * sizeof *scales);
      continue;
    }
    for (size_t i = 0; i < channels; i++) scales[i] = one;
  }
}

static bool has_scales(const mllm_program *program, const mllm_cache_record *cache) {
  const int64_t *row = table_of(program, cache) + 1;
  for (uint32_t layer = 0; layer < cache->layers; layer++, row += OF_LAYER) {
    if (row[1] >= 0) return true;
  }
  return false;
}

static bool read_table(const mllm_program *program, const unsigned char *weights,
                       const mllm_cache_record *cache, mllm_cache_info *info) {
  const int64_t *table = table_of(program, cache);
  if (table == NULL) return true;
  uint32_t *formats = calloc(cache->layers, sizeof *formats);
  info->formats = formats;
  if (formats == NULL) return false;
  for (uint32_t layer = 0; layer < cache->layers; layer++) {
    formats[layer] = (uint32_t)table[1 + (size_t)layer * OF_LAYER];
  }
  if (!has_scales(program, cache)) return true;
  uint16_t *scales =
      calloc((size_t)cache->layers * cache->kv_heads * cache->head_dim, sizeof *scales);
  info->key_scales = scales;
  if (scales == NULL) return false;
  gather_scales(program, weights, cache, scales);
  return true;
}

mllm_status mllm_caches_read(const mllm_program *program, const unsigned char *weights,
                             mllm_cache_info **infos, mllm_error *error) {
  const uint32_t count = program->counts[MLLM_SECTION_CACHES];
  mllm_cache_info *made = calloc((size_t)count + 1, sizeof *made);
  bool fits = made != NULL;
  for (uint32_t i = 0; fits && i < count; i++) {
    made[i] = shape_of(program, &program->caches[i]);
    fits = read_table(program, weights, &program->caches[i], &made[i]);
    made[i].page_bytes = mllm_kv_page_bytes(&made[i]);
  }
  if (!fits) {
    mllm_caches_free(made, count);
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for %u caches", count);
  }
  *infos = made;
  return MLLM_OK;
}

void mllm_caches_free(mllm_cache_info *infos, uint32_t count) {
  for (uint32_t i = 0; infos != NULL && i < count; i++) {
    free((void *)(uintptr_t)infos[i].formats);
    free((void *)(uintptr_t)infos[i].key_scales);
  }
  free(infos);
}

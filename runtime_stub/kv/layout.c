/* layout.c - sizes and places within a page. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

#include "../kernels/half.h"
#include "../src/status.h"
#include "stretch.h"

static size_t round_up(size_t bytes) { return (bytes + 3) / 4 * 4; }

size_t mllm_kv_code_bytes(uint32_t format, size_t dim) {
  if (format == MLLM_KV_F32) return dim * sizeof(float);
  if (format == MLLM_KV_F16) return dim * sizeof(uint16_t);
  return format == MLLM_KV_8 ? dim : (dim + 1) / 2;
}

size_t mllm_kv_side_bytes(const mllm_kv_layout *layout, uint32_t format, uint32_t kind,
                         size_t tokens) {
  if (format == MLLM_KV_8) return tokens * sizeof(uint16_t);
  if (format != MLLM_KV_4) return 0;
  const size_t ranges = kind == MLLM_KV_KEY ? tokens / MLLM_KV_SUB_BLOCK * layout->head_dim : tokens;
  return ranges * sizeof(mllm_kv_range);
}

static size_t stretch_bytes(const mllm_kv_layout *layout, const mllm_kv_stretch *s, uint32_t kind) {
  return round_up(mllm_kv_side_bytes(layout, s->format, kind, s->tokens) +
                  s->tokens * mllm_kv_code_bytes(s->format, layout->head_dim));
}

static uint32_t native(uint32_t format) { return format == MLLM_KV_4 ? MLLM_KV_8 : format; }

uint32_t mllm_kv_native_format(const mllm_kv_layout *layout, uint32_t layer) {
  return native(layout->formats[layer]);
}

bool mllm_kv_falls(const mllm_kv_layout *layout, uint32_t layer) {
  return layout->recent == 0 || layout->formats[layer] == MLLM_KV_4;
}

size_t mllm_kv_stretches(const mllm_kv_layout *layout, mllm_kv_state state, uint32_t layer,
                        uint32_t kind, mllm_kv_stretch parts[MLLM_KV_PARTS]) {
  const uint32_t tokens = layout->page_tokens;
  parts[0] = (mllm_kv_stretch){.tokens = tokens, .format = mllm_kv_native_format(layout, layer)};
  if (state == MLLM_KV_NATIVE || !mllm_kv_falls(layout, layer)) return 1;
  if (state == MLLM_KV_DEMOTED) {
    parts[0].format = MLLM_KV_4;
    return 1;
  }
  parts[0].tokens = MLLM_KV_SUB_BLOCK;
  parts[1] = (mllm_kv_stretch){.first = MLLM_KV_SUB_BLOCK,
                       .tokens = tokens - MLLM_KV_SUB_BLOCK,
                       .format = MLLM_KV_4,
                       .offset = stretch_bytes(layout, &parts[0], kind)};
  return 2;
}

size_t mllm_kv_head_bytes(const mllm_kv_layout *layout, mllm_kv_state state, uint32_t layer,
                         uint32_t kind) {
  mllm_kv_stretch parts[MLLM_KV_PARTS];
  const mllm_kv_stretch *last = &parts[mllm_kv_stretches(layout, state, layer, kind, parts) - 1];
  return last->offset + stretch_bytes(layout, last, kind);
}

size_t mllm_kv_head_start(const mllm_kv_layout *layout, mllm_kv_state state, uint32_t layer,
                         uint32_t kind, uint32_t head) {
  size_t start = layout->offsets[(size_t)state * layout->layers + layer];
  if (kind == MLLM_KV_VALUE) {
    start += layout->kv_heads * mllm_kv_head_bytes(layout, state, layer, MLLM_KV_KEY);
  }
  return start + head * mllm_kv_head_bytes(layout, state, layer, kind);
}

static void place_layers(mllm_kv_layout *layout, mllm_kv_state state) {
  size_t bytes = 0;
  for (uint32_t layer = 0; layer < layout->layers; layer++) {
    layout->offsets[(size_t)state * layout->layers + layer] = bytes;
    bytes += layout->kv_heads * (mllm_kv_head_bytes(layout, state, layer, MLLM_KV_KEY) +
                                 mllm_kv_head_bytes(layout, state, layer, MLLM_KV_VALUE));
  }
  layout->bytes[state] = bytes;
}

static bool can_fall(const mllm_kv_layout *layout) {
  return layout->page_tokens % MLLM_KV_SUB_BLOCK == 0 && layout->head_dim <= MLLM_KV_MAX_CHANNELS;
}

/* No format takes more than twice the bytes of floats, so sizes of pages that fit do not overflow. */
static bool fits(const mllm_cache_info *info) {
  uint64_t bytes = 2 * sizeof(float);
  return !__builtin_mul_overflow(bytes, info->layers, &bytes) &&
         !__builtin_mul_overflow(bytes, info->kv_heads, &bytes) &&
         !__builtin_mul_overflow(bytes, info->page_tokens, &bytes) &&
         !__builtin_mul_overflow(bytes, info->head_dim, &bytes) && bytes > 0 &&
         bytes <= SIZE_MAX / 4 && info->layers <= MLLM_KV_MAX_LAYERS;
}

uint64_t mllm_kv_page_bytes(const mllm_cache_info *info) {
  const mllm_kv_layout layout = {.head_dim = info->head_dim, .page_tokens = info->page_tokens};
  uint64_t bytes = 0;
  if (!fits(info)) return 0;
  for (uint32_t layer = 0; layer < info->layers; layer++) {
    const uint32_t format = info->formats == NULL ? MLLM_KV_F32 : info->formats[layer];
    if (format > MLLM_KV_4) return 0;
    const mllm_kv_stretch all = {.tokens = info->page_tokens, .format = native(format)};
    bytes += info->kv_heads *
             (stretch_bytes(&layout, &all, MLLM_KV_KEY) + stretch_bytes(&layout, &all, MLLM_KV_VALUE));
  }
  return bytes;
}

/* A page falls to 4 bits where a layer asks for it, so it must be able to. */
static bool is_possible(const mllm_kv_layout *layout) {
  for (uint32_t layer = 0; layer < layout->layers; layer++) {
    if (layout->formats[layer] == MLLM_KV_4 && !can_fall(layout)) return false;
  }
  return layout->recent % layout->page_tokens == 0;
}

mllm_status mllm_kv_layout_make(mllm_kv_layout *layout, const mllm_cache_info *info,
                                mllm_error *error) {
  const uint16_t *key_scales = info->key_scales;
  *layout = (mllm_kv_layout){.layers = info->layers,
                             .kv_heads = info->kv_heads,
                             .head_dim = info->head_dim,
                             .page_tokens = info->page_tokens,
                             .recent = info->recent};
  if (mllm_kv_page_bytes(info) == 0) {
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_CACHE,
                     "cache '%s' has no supported shape or format", info->name);
  }
  const size_t scales = (size_t)info->layers * info->kv_heads * info->head_dim;
  layout->formats = calloc(info->layers, sizeof *layout->formats);
  layout->offsets = calloc((size_t)info->layers * MLLM_KV_STATES, sizeof *layout->offsets);
  if (key_scales != NULL) layout->key_scales = calloc(scales, sizeof *layout->key_scales);
  if (layout->formats == NULL || layout->offsets == NULL ||
      (key_scales != NULL && layout->key_scales == NULL)) {
    mllm_kv_layout_free(layout);
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                     "no memory for the layout of cache '%s'", info->name);
  }
  if (info->formats != NULL) {
    memcpy(layout->formats, info->formats, info->layers * sizeof *layout->formats);
  }
  for (size_t i = 0; key_scales != NULL && i < scales; i++) {
    layout->key_scales[i] = mllm_half_to_float(key_scales[i]);
  }
  if (!is_possible(layout)) {
    mllm_kv_layout_free(layout);
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_CACHE,
                     "cache '%s': 4 bits need pages of whole sub-blocks of %d tokens, and at most "
                     "%d channels",
                     info->name, MLLM_KV_SUB_BLOCK, MLLM_KV_MAX_CHANNELS);
  }
  place_layers(layout, MLLM_KV_NATIVE);
  if (can_fall(layout)) place_layers(layout, MLLM_KV_DEMOTED);
  if (can_fall(layout)) place_layers(layout, MLLM_KV_DEMOTED_SINKS);
  return MLLM_OK;
}

uint32_t mllm_kv_old(const mllm_kv_layout *layout, uint32_t position) {
  const uint32_t page = position - position % layout->page_tokens;
  return layout->recent > 0 && page > layout->recent ? page - layout->recent : 0;
}

void mllm_kv_layout_free(mllm_kv_layout *layout) {
  free(layout->formats);
  free(layout->offsets);
  free(layout->key_scales);
  memset(layout, 0, sizeof *layout);
}

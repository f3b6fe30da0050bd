/* page_rows.c - rows of floats into a page and out of it. */
#include <string.h>

#include "../kernels/half.h"
#include "stretch.h"

static const float *channels_of(const mllm_kv_layout *layout, uint32_t layer, uint32_t kind,
                                uint32_t head) {
  if (kind != MLLM_KV_KEY || layout->key_scales == NULL) return NULL;
  return layout->key_scales + ((size_t)layer * layout->kv_heads + head) * layout->head_dim;
}

void mllm_kv_write_rows(const mllm_kv_layout *layout, unsigned char *page, uint32_t layer,
                        uint32_t kind, uint32_t head, uint32_t token, const float *rows,
                        size_t stride, uint32_t count) {
  const uint32_t format = mllm_kv_native_format(layout, layer);
  const size_t dim = layout->head_dim;
  unsigned char *start = page + mllm_kv_head_start(layout, MLLM_KV_NATIVE, layer, kind, head);
  unsigned char *codes = start + mllm_kv_side_bytes(layout, format, kind, layout->page_tokens) +
                         token * mllm_kv_code_bytes(format, dim);
  const float *channels = channels_of(layout, layer, kind, head);
  for (uint32_t i = 0; i < count; i++, rows += stride, codes += mllm_kv_code_bytes(format, dim)) {
    if (format == MLLM_KV_F32) {
      memcpy(codes, rows, dim * sizeof(float));
    } else if (format == MLLM_KV_F16) {
      uint16_t *halves = (uint16_t *)(void *)codes;
      for (size_t c = 0; c < dim; c++) halves[c] = mllm_float_to_half(rows[c]);
    } else {
      uint16_t *scales = (uint16_t *)(void *)start;
      scales[token + i] = mllm_kv_encode_8((int8_t *)codes, rows, channels, dim);
    }
  }
}

/* Rows token.. of one stretch, counted from its first. */
static void read_stretch(const mllm_kv_layout *layout, const unsigned char *start, const mllm_kv_stretch *s,
                         uint32_t kind, const float *channels, uint32_t token, uint32_t count,
                         float *out) {
  const size_t dim = layout->head_dim;
  const unsigned char *codes = start + mllm_kv_side_bytes(layout, s->format, kind, s->tokens) +
                               token * mllm_kv_code_bytes(s->format, dim);
  if (s->format == MLLM_KV_F32) {
    memcpy(out, codes, count * dim * sizeof(float));
    return;
  }
  if (s->format == MLLM_KV_F16) {
    const uint16_t *halves = (const uint16_t *)(const void *)codes;
    for (size_t i = 0; i < count * dim; i++) out[i] = mllm_half_to_float(halves[i]);
    return;
  }
  const uint16_t *scales = (const uint16_t *)(const void *)start;
  const mllm_kv_range *ranges = (const mllm_kv_range *)(const void *)start;
  mllm_kv_ranges floats;
  for (uint32_t i = 0; i < count; i++, out += dim, codes += mllm_kv_code_bytes(s->format, dim)) {
    const size_t at = token + i;
    if (s->format == MLLM_KV_8) {
      mllm_kv_decode_8(out, (const int8_t *)codes, scales[at], channels, dim);
      continue;
    }
    if (kind == MLLM_KV_VALUE) mllm_kv_expand(&floats, ranges + at, 0, dim);
    if (kind == MLLM_KV_KEY && (i == 0 || at % MLLM_KV_SUB_BLOCK == 0)) {
      mllm_kv_expand(&floats, ranges + at / MLLM_KV_SUB_BLOCK * dim, 1, dim);
    }
    mllm_kv_decode_4(out, codes, &floats, dim);
  }
}

void mllm_kv_read_rows(const mllm_kv_layout *layout, const unsigned char *page,
                       mllm_kv_state state, uint32_t layer, uint32_t kind, uint32_t head,
                       uint32_t token, uint32_t count, float *out) {
  mllm_kv_stretch parts[MLLM_KV_PARTS];
  const size_t n = mllm_kv_stretches(layout, state, layer, kind, parts);
  const unsigned char *start = page + mllm_kv_head_start(layout, state, layer, kind, head);
  const float *channels = channels_of(layout, layer, kind, head);
  for (size_t i = 0; i < n && count > 0; i++) {
    const mllm_kv_stretch *s = &parts[i];
    if (token >= s->first + s->tokens) continue;
    const uint32_t left = s->first + s->tokens - token;
    const uint32_t part = count < left ? count : left;
    read_stretch(layout, start + s->offset, s, kind, channels, token - s->first, part, out);
    token += part;
    count -= part;
    out += (size_t)part * layout->head_dim;
  }
}

bool mllm_kv_rows_in_place(const mllm_kv_layout *layout, const unsigned char *page,
                           mllm_kv_state state, uint32_t layer, uint32_t kind, uint32_t head,
                           uint32_t token, mllm_kv_stored *rows) {
  if (state != MLLM_KV_NATIVE && mllm_kv_falls(layout, layer)) return false;
  const uint32_t format = mllm_kv_native_format(layout, layer);
  const unsigned char *start = page + mllm_kv_head_start(layout, state, layer, kind, head);
  *rows = (mllm_kv_stored){
      .format = format,
      .data = start + mllm_kv_side_bytes(layout, format, kind, layout->page_tokens) +
              token * mllm_kv_code_bytes(format, layout->head_dim),
      .stride = layout->head_dim,
  };
  if (format != MLLM_KV_8) return true;
  rows->scales = (const uint16_t *)(const void *)start + token;
  rows->channels = channels_of(layout, layer, kind, head);
  return true;
}

void mllm_kv_copy_tokens(const mllm_kv_layout *layout, const unsigned char *from, unsigned char *to,
                         uint32_t tokens) {
  for (uint32_t layer = 0; layer < layout->layers; layer++) {
    const uint32_t format = mllm_kv_native_format(layout, layer);
    const size_t row = mllm_kv_code_bytes(format, layout->head_dim);
    for (uint32_t kind = 0; kind < 2; kind++) {
      const size_t all = mllm_kv_side_bytes(layout, format, kind, layout->page_tokens);
      const size_t side = mllm_kv_side_bytes(layout, format, kind, tokens);
      for (uint32_t head = 0; head < layout->kv_heads; head++) {
        const size_t at = mllm_kv_head_start(layout, MLLM_KV_NATIVE, layer, kind, head);
        memcpy(to + at, from + at, side);
        memcpy(to + at + all, from + at + all, tokens * row);
      }
    }
  }
}

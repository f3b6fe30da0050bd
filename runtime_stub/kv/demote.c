/* demote.c - a page's way to 4 bits and back, a sub-block of a head at a time. */
#include <string.h>

#include "stretch.h"

/* The 4-bit stretch of a head from floats: rows of one sub-block, the first of which is `token` of
 * the stretch. */
static void write_sub_block(const mllm_kv_layout *layout, unsigned char *start,
                            const mllm_kv_stretch *s, uint32_t kind, uint32_t token,
                            const float *rows) {
  const size_t dim = layout->head_dim;
  const size_t width = mllm_kv_code_bytes(MLLM_KV_4, dim);
  uint8_t *codes = start + mllm_kv_side_bytes(layout, MLLM_KV_4, kind, s->tokens) + token * width;
  mllm_kv_range *ranges = (mllm_kv_range *)(void *)start;
  mllm_kv_ranges floats;
  if (kind == MLLM_KV_KEY) {
    ranges += token / MLLM_KV_SUB_BLOCK * dim;
    mllm_kv_column_ranges(ranges, rows, dim);
    mllm_kv_expand(&floats, ranges, 1, dim);
  }
  for (size_t i = 0; i < MLLM_KV_SUB_BLOCK; i++) {
    if (kind == MLLM_KV_VALUE) {
      ranges[token + i] = mllm_kv_range_of(rows + i * dim, dim);
      mllm_kv_expand(&floats, &ranges[token + i], 0, dim);
    }
    mllm_kv_encode_4(codes + i * width, rows + i * dim, &floats, dim);
  }
}

/* The first tokens of a head, which keep their bytes. */
static void move_sinks(const mllm_kv_layout *layout, uint32_t layer, uint32_t kind,
                       const unsigned char *from, size_t from_tokens, unsigned char *to,
                       size_t to_tokens) {
  const uint32_t format = mllm_kv_native_format(layout, layer);
  const size_t codes = MLLM_KV_SUB_BLOCK * mllm_kv_code_bytes(format, layout->head_dim);
  memcpy(to, from, mllm_kv_side_bytes(layout, format, kind, MLLM_KV_SUB_BLOCK));
  memcpy(to + mllm_kv_side_bytes(layout, format, kind, to_tokens),
         from + mllm_kv_side_bytes(layout, format, kind, from_tokens), codes);
}

static void demote_head(const mllm_kv_layout *layout, const unsigned char *native,
                        unsigned char *demoted, mllm_kv_state to, uint32_t layer, uint32_t kind,
                        uint32_t head) {
  float rows[MLLM_KV_SUB_BLOCK * MLLM_KV_MAX_CHANNELS];
  mllm_kv_stretch parts[MLLM_KV_PARTS];
  const size_t n = mllm_kv_stretches(layout, to, layer, kind, parts);
  const mllm_kv_stretch *low = &parts[n - 1];
  unsigned char *start = demoted + mllm_kv_head_start(layout, to, layer, kind, head);
  const unsigned char *source =
      native + mllm_kv_head_start(layout, MLLM_KV_NATIVE, layer, kind, head);
  if (!mllm_kv_falls(layout, layer)) {
    memcpy(start, source, mllm_kv_head_bytes(layout, MLLM_KV_NATIVE, layer, kind));
    return;
  }
  if (n == MLLM_KV_PARTS) {
    move_sinks(layout, layer, kind, source, layout->page_tokens, start, MLLM_KV_SUB_BLOCK);
  }
  for (uint32_t token = 0; token < low->tokens; token += MLLM_KV_SUB_BLOCK) {
    mllm_kv_read_rows(layout, native, MLLM_KV_NATIVE, layer, kind, head, low->first + token,
                      MLLM_KV_SUB_BLOCK, rows);
    write_sub_block(layout, start + low->offset, low, kind, token, rows);
  }
}

void mllm_kv_demote(const mllm_kv_layout *layout, const unsigned char *native,
                    unsigned char *demoted, mllm_kv_state to) {
  for (uint32_t layer = 0; layer < layout->layers; layer++) {
    for (uint32_t head = 0; head < layout->kv_heads; head++) {
      demote_head(layout, native, demoted, to, layer, MLLM_KV_KEY, head);
      demote_head(layout, native, demoted, to, layer, MLLM_KV_VALUE, head);
    }
  }
}

static void promote_head(const mllm_kv_layout *layout, const unsigned char *demoted,
                         mllm_kv_state from, unsigned char *native, uint32_t layer, uint32_t kind,
                         uint32_t head) {
  float rows[MLLM_KV_SUB_BLOCK * MLLM_KV_MAX_CHANNELS];
  mllm_kv_stretch parts[MLLM_KV_PARTS];
  const size_t n = mllm_kv_stretches(layout, from, layer, kind, parts);
  const mllm_kv_stretch *low = &parts[n - 1];
  const unsigned char *source = demoted + mllm_kv_head_start(layout, from, layer, kind, head);
  unsigned char *start = native + mllm_kv_head_start(layout, MLLM_KV_NATIVE, layer, kind, head);
  if (!mllm_kv_falls(layout, layer)) {
    memcpy(start, source, mllm_kv_head_bytes(layout, MLLM_KV_NATIVE, layer, kind));
    return;
  }
  if (n == MLLM_KV_PARTS) {
    move_sinks(layout, layer, kind, source, MLLM_KV_SUB_BLOCK, start, layout->page_tokens);
  }
  for (uint32_t token = low->first; token < layout->page_tokens; token += MLLM_KV_SUB_BLOCK) {
    mllm_kv_read_rows(layout, demoted, from, layer, kind, head, token, MLLM_KV_SUB_BLOCK, rows);
    mllm_kv_write_rows(layout, native, layer, kind, head, token, rows, layout->head_dim,
                       MLLM_KV_SUB_BLOCK);
  }
}

void mllm_kv_promote(const mllm_kv_layout *layout, const unsigned char *demoted,
                     mllm_kv_state from, unsigned char *native) {
  for (uint32_t layer = 0; layer < layout->layers; layer++) {
    for (uint32_t head = 0; head < layout->kv_heads; head++) {
      promote_head(layout, demoted, from, native, layer, MLLM_KV_KEY, head);
      promote_head(layout, demoted, from, native, layer, MLLM_KV_VALUE, head);
    }
  }
}

void mllm_kv_round_to_4(float *rows, uint32_t kind, uint32_t count, size_t head_dim) {
  mllm_kv_range ranges[MLLM_KV_MAX_CHANNELS];
  mllm_kv_ranges floats;
  for (uint32_t i = 0; i < count; i++, rows += head_dim) {
    if (kind == MLLM_KV_VALUE) {
      ranges[0] = mllm_kv_range_of(rows, head_dim);
      mllm_kv_expand(&floats, ranges, 0, head_dim);
    } else if (i % MLLM_KV_SUB_BLOCK == 0) {
      mllm_kv_column_ranges(ranges, rows, head_dim);
      mllm_kv_expand(&floats, ranges, 1, head_dim);
    }
    mllm_kv_round_4(rows, &floats, head_dim);
  }
}

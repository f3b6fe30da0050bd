/* row_codes.h - rows of keys and values as codes of 8 and 4 bits: the arithmetic of
 * mllm_compiler/reference/kv_cache.py, bit for bit. Sides (scales, steps, least numbers) are half
 * floats. */
#ifndef MLLM_KV_ROW_CODES_H
#define MLLM_KV_ROW_CODES_H

#include <stddef.h>
#include <stdint.h>

enum {
  MLLM_KV_SUB_BLOCK = 32,    /* tokens whose 4-bit keys share a step for each channel */
  MLLM_KV_MAX_CHANNELS = 512 /* of a head whose pages can be demoted */
};

/* Codes of 8 bits of a row, divided by channels[dim] before where they are not NULL; the answer is
 * the scale. */
uint16_t mllm_kv_encode_8(int8_t *codes, const float *row, const float *channels, size_t dim);
void mllm_kv_decode_8(float *row, const int8_t *codes, uint16_t scale, const float *channels,
                      size_t dim);

/* Rows of a head as they are stored, one behind another: MLLM_KV_F32, MLLM_KV_F16, or MLLM_KV_8, where
 * number c of row i means code * scales[i], and * channels[c] where they are not NULL. */
typedef struct mllm_kv_stored {
  uint32_t format;
  const void *data;
  size_t stride; /* elements between rows */
  const uint16_t *scales;
  const float *channels;
} mllm_kv_stored;

/* What 4 bits mean: code * step + least. */
typedef struct mllm_kv_range {
  uint16_t step;
  uint16_t least;
} mllm_kv_range;

mllm_kv_range mllm_kv_range_of(const float *numbers, size_t n);

/* Ranges of the dim columns of MLLM_KV_SUB_BLOCK rows side by side. */
void mllm_kv_column_ranges(mllm_kv_range *ranges, const float *rows, size_t dim);

/* Ranges as floats, once for all the rows that they are of: one of each number of a row, or one that
 * all of them share. */
typedef struct mllm_kv_ranges {
  float step[MLLM_KV_MAX_CHANNELS];
  float least[MLLM_KV_MAX_CHANNELS];
} mllm_kv_ranges;

void mllm_kv_expand(mllm_kv_ranges *ranges, const mllm_kv_range *halves, size_t apart, size_t dim);

/* A row's codes, two in a byte: the low bits of a byte are of the first half of the row. */
void mllm_kv_encode_4(uint8_t *codes, const float *row, const mllm_kv_ranges *ranges, size_t dim);
void mllm_kv_decode_4(float *row, const uint8_t *codes, const mllm_kv_ranges *ranges, size_t dim);

/* The row becomes what its codes mean. */
void mllm_kv_round_4(float *row, const mllm_kv_ranges *ranges, size_t dim);

#endif /* MLLM_KV_ROW_CODES_H */

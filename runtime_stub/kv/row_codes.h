/* row_codes.h - rows of keys and values as codes of 8 and 4 bits: the arithmetic of
 * mllm_compiler/reference/kv_cache.py, bit for bit. Sides (scales, steps, least numbers) are half
 * floats. */
#ifndef MLLM_KV_ROW_CODES_H
#define MLLM_KV_ROW_CODES_H

#include <stddef.h>
#include <stdint.h>

enum { MLLM_KV_SUB_BLOCK = 32 /* tokens whose 4-bit keys share a step for each channel */ };

/* Codes of 8 bits of a row, divided by channels[dim] before where they are not NULL; the answer is
 * the scale. */
uint16_t mllm_kv_encode_8(int8_t *codes, const float *row, const float *channels, size_t dim);
void mllm_kv_decode_8(float *row, const int8_t *codes, uint16_t scale, const float *channels,
                      size_t dim);

/* What 4 bits mean, from the first of n numbers, step elements apart: code * step + least. */
typedef struct mllm_kv_range {
  uint16_t step;
  uint16_t least;
} mllm_kv_range;

mllm_kv_range mllm_kv_range_of(const float *numbers, size_t n, size_t apart);

/* Ranges of the dim columns of MLLM_KV_SUB_BLOCK rows side by side. */
void mllm_kv_column_ranges(mllm_kv_range *ranges, const float *rows, size_t dim);

/* A row's codes, two in a byte, low bits first. apart is 1 where each number has a range of its
 * own, and 0 where ranges[0] is that of all. */
void mllm_kv_encode_4(uint8_t *codes, const float *row, const mllm_kv_range *ranges, size_t apart,
                      size_t dim);
void mllm_kv_decode_4(float *row, const uint8_t *codes, const mllm_kv_range *ranges, size_t apart,
                      size_t dim);

#endif /* MLLM_KV_ROW_CODES_H */

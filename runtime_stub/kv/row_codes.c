/* row_codes.c - codes of rows. Nothing here is contracted: each operation is rounded, as the
 * reference does it. */
#include "row_codes.h"

#include <math.h>

#include "../kernels/half.h"

#define LEAST   0x1p-24F /* the steps that a half float holds */
#define LARGEST 65504.0F

static inline float clamp(float x, float low, float high) {
  const float raised = x < low ? low : x;
  return raised > high ? high : raised;
}

static uint16_t stored(float step) { return mllm_float_to_half(clamp(step, LEAST, LARGEST)); }

/* To the nearest, half to even, for |x| < 2^22: 1.5 * 2^23 is a float that counts in ones. */
static inline float nearest(float x) { return (x + 12582912.0F) - 12582912.0F; }

static inline float divided(const float *row, const float *channels, size_t i) {
  return channels == NULL ? row[i] : row[i] / channels[i];
}

uint16_t mllm_kv_encode_8(int8_t *codes, const float *row, const float *channels, size_t dim) {
  float top = 0.0F;
  for (size_t i = 0; i < dim; i++) {
    const float size = fabsf(divided(row, channels, i));
    top = size > top || size != size ? size : top;
  }
  const uint16_t half = stored(top / 127.0F);
  const float scale = mllm_half_to_float(half);
  for (size_t i = 0; i < dim; i++) {
    const float quotient = divided(row, channels, i) / scale;
    const float number = quotient != quotient ? 0.0F : clamp(quotient, -128.0F, 127.0F);
    codes[i] = (int8_t)nearest(number);
  }
  return half;
}

void mllm_kv_decode_8(float *row, const int8_t *codes, uint16_t scale, const float *channels,
                      size_t dim) {
  const float wide = mllm_half_to_float(scale);
  for (size_t i = 0; i < dim; i++) row[i] = (float)codes[i] * wide;
  if (channels == NULL) return;
  for (size_t i = 0; i < dim; i++) row[i] *= channels[i];
}

static mllm_kv_range range_between(float low, float high) {
  return (mllm_kv_range){
      .step = stored((high - low) / 15.0F),
      .least = mllm_float_to_half(clamp(low, -LARGEST, LARGEST)),
  };
}

static inline float lower(float low, float x) { return x < low || x != x ? x : low; }
static inline float higher(float high, float x) { return x > high || x != x ? x : high; }

mllm_kv_range mllm_kv_range_of(const float *numbers, size_t n, size_t apart) {
  float low = numbers[0];
  float high = numbers[0];
  for (size_t i = 1; i < n; i++) {
    low = lower(low, numbers[i * apart]);
    high = higher(high, numbers[i * apart]);
  }
  return range_between(low, high);
}

void mllm_kv_column_ranges(mllm_kv_range *ranges, const float *rows, size_t dim) {
  for (size_t c = 0; c < dim; c++) {
    ranges[c] = mllm_kv_range_of(rows + c, MLLM_KV_SUB_BLOCK, dim);
  }
}

static inline uint8_t code_of(float x, mllm_kv_range range) {
  const float place =
      (x - mllm_half_to_float(range.least)) / mllm_half_to_float(range.step);
  return place != place ? 0 : (uint8_t)nearest(clamp(place, 0.0F, 15.0F));
}

void mllm_kv_encode_4(uint8_t *codes, const float *row, const mllm_kv_range *ranges, size_t apart,
                      size_t dim) {
  for (size_t i = 0; i < dim; i++) {
    const uint32_t code = code_of(row[i], ranges[i * apart]);
    const uint32_t lower_half = i % 2 != 0 ? codes[i / 2] : 0;
    codes[i / 2] = (uint8_t)(lower_half | code << (i % 2 * 4));
  }
}

void mllm_kv_decode_4(float *row, const uint8_t *codes, const mllm_kv_range *ranges, size_t apart,
                      size_t dim) {
  for (size_t i = 0; i < dim; i++) {
    const uint32_t code = i % 2 != 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15U;
    const mllm_kv_range range = ranges[i * apart];
    row[i] = (float)code * mllm_half_to_float(range.step) + mllm_half_to_float(range.least);
  }
}

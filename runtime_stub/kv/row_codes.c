/* row_codes.c - codes of rows. Nothing here is contracted: each operation is rounded, as the
 * reference does it. */
#include "row_codes.h"

#include <math.h>
#include <string.h>

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

static inline float lower(float low, float x) { return (x < low) | (x != x) ? x : low; }
static inline float higher(float high, float x) { return (x > high) | (x != x) ? x : high; }

mllm_kv_range mllm_kv_range_of(const float *numbers, size_t n) {
  float low = numbers[0];
  float high = numbers[0];
  for (size_t i = 1; i < n; i++) {
    low = lower(low, numbers[i]);
    high = higher(high, numbers[i]);
  }
  return range_between(low, high);
}

void mllm_kv_column_ranges(mllm_kv_range *ranges, const float *rows, size_t dim) {
  float low[MLLM_KV_MAX_CHANNELS];
  float high[MLLM_KV_MAX_CHANNELS];
  memcpy(low, rows, dim * sizeof(float));
  memcpy(high, rows, dim * sizeof(float));
  for (size_t i = 1; i < MLLM_KV_SUB_BLOCK; i++) {
    for (size_t c = 0; c < dim; c++) {
      low[c] = lower(low[c], rows[i * dim + c]);
      high[c] = higher(high[c], rows[i * dim + c]);
    }
  }
  for (size_t c = 0; c < dim; c++) ranges[c] = range_between(low[c], high[c]);
}

void mllm_kv_expand(mllm_kv_ranges *ranges, const mllm_kv_range *halves, size_t apart, size_t dim) {
  for (size_t i = 0; i < dim; i++) {
    ranges->step[i] = mllm_half_to_float(halves[i * apart].step);
    ranges->least[i] = mllm_half_to_float(halves[i * apart].least);
  }
}

/* The code of a number, as a float. */
static inline float code_of(float x, float step, float least) {
  const float place = (x - least) / step;
  return place != place ? 0.0F : nearest(clamp(place, 0.0F, 15.0F));
}

void mllm_kv_encode_4(uint8_t *codes, const float *row, const mllm_kv_ranges *ranges, size_t dim) {
  const size_t half = (dim + 1) / 2;
  for (size_t i = 0; i < half; i++) {
    codes[i] = (uint8_t)code_of(row[i], ranges->step[i], ranges->least[i]);
  }
  for (size_t i = half; i < dim; i++) {
    const uint32_t code = (uint32_t)code_of(row[i], ranges->step[i], ranges->least[i]);
    codes[i - half] = (uint8_t)(codes[i - half] | code << 4);
  }
}

void mllm_kv_decode_4(float *row, const uint8_t *codes, const mllm_kv_ranges *ranges, size_t dim) {
  const size_t half = (dim + 1) / 2;
  for (size_t i = 0; i < half; i++) {
    row[i] = (float)(codes[i] & 15) * ranges->step[i] + ranges->least[i];
  }
  for (size_t i = half; i < dim; i++) {
    row[i] = (float)(codes[i - half] >> 4) * ranges->step[i] + ranges->least[i];
  }
}

void mllm_kv_round_4(float *row, const mllm_kv_ranges *ranges, size_t dim) {
  for (size_t i = 0; i < dim; i++) {
    const float step = ranges->step[i];
    row[i] = code_of(row[i], step, ranges->least[i]) * step + ranges->least[i];
  }
}

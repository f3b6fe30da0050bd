/* half.h - half floats and floats. */
#ifndef MLLM_HALF_H
#define MLLM_HALF_H

#include <stdint.h>
#include <string.h>

/* Exact: a half float's bits in a float's places are its number times 2^-112. */
static inline __attribute__((always_inline)) float mllm_half_to_float(uint16_t half) {
  const uint32_t magnitude = (uint32_t)(half & 0x7FFFU) << 13;
  const uint32_t special = magnitude >= 0x0F800000U ? 0x7F800000U : 0;
  float scaled;
  memcpy(&scaled, &magnitude, sizeof scaled);
  scaled *= 0x1p112F;
  uint32_t bits;
  memcpy(&bits, &scaled, sizeof bits);
  bits |= special | (uint32_t)(half & 0x8000U) << 16;
  memcpy(&scaled, &bits, sizeof scaled);
  return scaled;
}

/* To the nearest, ties to even. */
static inline uint16_t mllm_float_to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return (uint16_t)(sign | 0x7E00U);
  if (magnitude >= 0x477FF000U) return (uint16_t)(sign | 0x7C00U); /* rounds past 65504 */
  if (magnitude < 0x38800000U) {
    /* below 2^-14: the float that counts in steps of 2^-24 rounds for us */
    float small;
    memcpy(&small, &magnitude, sizeof small);
    const float steps = small * 0x1p24F + 0x1p23F - 0x1p23F;
    return (uint16_t)(sign | (uint16_t)steps);
  }
  const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return (uint16_t)(sign | (uint16_t)((rounded - 0x38000000U) >> 13));
}

#endif /* MLLM_HALF_H */

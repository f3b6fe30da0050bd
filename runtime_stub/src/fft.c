#include "fft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool mllm_fft_make(mllm_fft *fft, size_t size) {
  *fft = (mllm_fft){.size = size};
  fft->turns = malloc(4 * size * sizeof *fft->turns);
  if (fft->turns == NULL) return false;
  const double step = -2.0 * acos(-1.0) / (double)size;
  for (size_t k = 0; k < size; k++)
    fft->turns[k] = (mllm_complex){cos(step * (double)k), sin(step * (double)k)};
  return true;
}

void mllm_fft_free(mllm_fft *fft) {
  free(fft->turns);
  *fft = (mllm_fft){0};
}

static size_t smallest_factor(size_t size) {
  for (size_t factor = 2; factor * factor <= size; factor++)
    if (size % factor == 0) return factor;
  return size;
}

/* out[k] of a transform whose `factor` parts, of in[factor * n + i], stand in parts[i][.]. */
static mllm_complex combine(const mllm_fft *fft, const mllm_complex *parts, size_t size,
                            size_t factor, size_t k) {
  const size_t part = size / factor, stride = fft->size / size;
  mllm_complex sum = {0};
  for (size_t i = 0; i < factor; i++) {
    const mllm_complex value = parts[i * part + k % part];
    const mllm_complex turn = fft->turns[i * k * stride % fft->size];
    sum.re += value.re * turn.re - value.im * turn.im;
    sum.im += value.re * turn.im + value.im * turn.re;
  }
  return sum;
}

/* Transforms in[0], in[stride] ... into out[size]; spare[size] is working memory. */
static void transform(const mllm_fft *fft, size_t size, size_t stride, const mllm_complex *in,
                      mllm_complex *out, mllm_complex *spare) {
  if (size == 1) {
    out[0] = in[0];
    return;
  }
  const size_t factor = smallest_factor(size), part = size / factor;
  for (size_t i = 0; i < factor; i++)
    transform(fft, part, stride * factor, in + i * stride, spare + i * part, out + i * part);
  for (size_t k = 0; k < size; k++) out[k] = combine(fft, spare, size, factor, k);
}

void mllm_fft_power(const mllm_fft *fft, const double *samples, double *power) {
  mllm_complex *in = fft->turns + fft->size, *out = in + fft->size, *spare = out + fft->size;
  for (size_t i = 0; i < fft->size; i++) in[i] = (mllm_complex){samples[i], 0.0};
  transform(fft, fft->size, 1, in, out, spare);
  for (size_t k = 0; k <= fft->size / 2; k++)
    power[k] = out[k].re * out[k].re + out[k].im * out[k].im;
}

/* A discrete Fourier transform of any size, by its prime factors, in double precision. */
#ifndef MLLM_FFT_H
#define MLLM_FFT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mllm_complex {
  double re;
  double im;
} mllm_complex;

typedef struct mllm_fft {
  size_t size;
  mllm_complex *turns; /* [size]: exp(-2 pi i k / size), then working memory [3 * size] */
} mllm_fft;

/* False when memory runs out; nothing has to be freed then. */
bool mllm_fft_make(mllm_fft *fft, size_t size);
void mllm_fft_free(mllm_fft *fft);

/* |X[k]|^2 for k = 0 .. size / 2 of `size` real samples. */
void mllm_fft_power(const mllm_fft *fft, const double *samples, double *power);

#endif

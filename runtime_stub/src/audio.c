/* Whisper's log-mel spectrogram. */
#include "audio.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fft.h"
#include "status.h"

/* The mel scale of Slaney's toolbox: linear below 1 kHz, logarithmic above. */
static double hertz_of(double mel) {
  return mel < 15.0 ? mel * 200.0 / 3.0 : 1000.0 * exp(log(6.4) / 27.0 * (mel - 15.0));
}

static double mel_of(double hertz) {
  return hertz < 1000.0 ? hertz * 3.0 / 200.0 : 15.0 + log(hertz / 1000.0) * 27.0 / log(6.4);
}

/* Triangles between neighbouring centres, of equal area: [mels, bins]. */
static void mel_filters(const mllm_audio_config *config, size_t bins, double *filters) {
  const double top = mel_of(config->rate / 2.0), step = top / (config->mels + 1);
  for (size_t m = 0; m < config->mels; m++) {
    const double low = hertz_of(step * (double)m), centre = hertz_of(step * (double)(m + 1));
    const double high = hertz_of(m + 1 == config->mels ? top : step * (double)(m + 2));
    for (size_t k = 0; k < bins; k++) {
      const double at = (double)k * config->rate / config->n_fft;
      const double rise = (at - low) / (centre - low), fall = (high - at) / (high - centre);
      const double height = rise < fall ? rise : fall;
      filters[m * bins + k] = height > 0.0 ? height * 2.0 / (high - low) : 0.0;
    }
  }
}

/* Sample `at` of a signal that is mirrored at both ends (without repeating the end samples). */
static double mirrored(const float *samples, size_t count, ptrdiff_t at) {
  if (at < 0) at = -at;
  const ptrdiff_t last = (ptrdiff_t)count - 1;
  if (at > last) at = 2 * last - at;
  return samples[at];
}

typedef struct spectrogram {
  const mllm_audio_config *config;
  size_t bins;
  mllm_fft fft;
  double *window;  /* [n_fft] */
  double *frame;   /* [n_fft] */
  double *power;   /* [bins] */
  double *filters; /* [mels, bins] */
} spectrogram;

static bool prepare(spectrogram *s, const mllm_audio_config *config) {
  *s = (spectrogram){.config = config, .bins = config->n_fft / 2 + 1};
  const size_t n = config->n_fft;
  if (!mllm_fft_make(&s->fft, n)) return false;
  s->window = malloc((2 * n + s->bins * (1 + (size_t)config->mels)) * sizeof *s->window);
  if (s->window == NULL) return false;
  s->frame = s->window + n;
  s->power = s->frame + n;
  s->filters = s->power + s->bins;
  for (size_t i = 0; i < n; i++)
    s->window[i] = 0.5 - 0.5 * cos(2.0 * acos(-1.0) * (double)i / (double)n);
  mel_filters(config, s->bins, s->filters);
  return true;
}

/* One column of the features, log10 of the mel energies. */
static void column(spectrogram *s, const float *samples, size_t t, float *features) {
  const mllm_audio_config *c = s->config;
  const size_t count = (size_t)c->frames * c->hop;
  const ptrdiff_t start = (ptrdiff_t)(t * c->hop) - (ptrdiff_t)(c->n_fft / 2);
  for (size_t i = 0; i < c->n_fft; i++)
    s->frame[i] = s->window[i] * mirrored(samples, count, start + (ptrdiff_t)i);
  mllm_fft_power(&s->fft, s->frame, s->power);
  for (size_t m = 0; m < c->mels; m++) {
    double energy = 0.0;
    for (size_t k = 0; k < s->bins; k++) energy += s->filters[m * s->bins + k] * s->power[k];
    features[m * c->frames + t] = (float)log10(energy > 1e-10 ? energy : 1e-10);
  }
}

mllm_status mllm_log_mel(const mllm_audio_config *config, const float *samples, float *features,
                         mllm_error *error) {
  const mllm_audio_config *c = config;
  if (c->n_fft < 2 || c->n_fft > 1 << 16 || c->hop == 0 || c->mels == 0 || c->mels > 1024 ||
      c->rate == 0 || c->frames > 1 << 20 || (size_t)c->frames * c->hop < c->n_fft)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_AUDIO,
                     "the audio settings are out of range");
  spectrogram s;
  const bool good = prepare(&s, c);
  float peak = -INFINITY;
  const size_t count = (size_t)c->mels * c->frames;
  for (size_t t = 0; good && t < c->frames; t++) column(&s, samples, t, features);
  for (size_t i = 0; good && i < count; i++) peak = features[i] > peak ? features[i] : peak;
  for (size_t i = 0; good && i < count; i++) {
    const float value = features[i] > peak - 8.0f ? features[i] : peak - 8.0f;
    features[i] = (value + 4.0f) / 4.0f;
  }
  free(s.window);
  mllm_fft_free(&s.fft);
  if (good) return MLLM_OK;
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a spectrogram");
}

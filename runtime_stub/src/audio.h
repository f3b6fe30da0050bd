/* Sound in: WAV files, resampling, Whisper's log-mel spectrogram. */
#ifndef MLLM_AUDIO_H
#define MLLM_AUDIO_H

#include "file.h"

#define MLLM_CODE_AUDIO "MLC-X024"

/* 16-bit little-endian samples of one or two interleaved channels, in the bytes of a file. */
typedef struct mllm_wav {
  const uint8_t *samples;
  size_t frames;
  uint32_t channels;
  uint32_t rate;
} mllm_wav;

typedef struct mllm_audio_config {
  uint32_t rate;   /* 16000 */
  uint32_t n_fft;  /* 400 */
  uint32_t hop;    /* 160 */
  uint32_t mels;   /* 80 */
  uint32_t frames; /* 3000: what the encoder takes */
} mllm_audio_config;

mllm_status mllm_wav_parse(const uint8_t *bytes, size_t size, mllm_wav *wav, mllm_error *error);

/* Frames after resampling to `rate`. */
size_t mllm_resampled_frames(size_t frames, uint32_t from, uint32_t rate);

/* The mean of the channels in -1..1, linearly interpolated to `rate`: `count` values from the
 * start, zero behind the end. */
void mllm_wav_read(const mllm_wav *wav, uint32_t rate, float *out, size_t count);

/* Linear interpolation of mono samples, as above. */
void mllm_resample(const float *samples, size_t frames, uint32_t from, uint32_t rate, float *out,
                   size_t count);

/* Whisper's features of frames * hop samples: [mels, frames]. Hann window (periodic), reflected at
 * both ends, Slaney mel filters, log10, at most 8 below the peak, (x + 4) / 4. */
mllm_status mllm_log_mel(const mllm_audio_config *config, const float *samples, float *features,
                         mllm_error *error);

#endif

/* RIFF WAVE with 16-bit PCM, one or two channels. */
#include <stdbool.h>
#include <string.h>

#include "audio.h"
#include "status.h"

static uint32_t read16(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8; }

static uint32_t read32(const uint8_t *at) { return read16(at) | read16(at + 2) << 16; }

static mllm_status refuse(mllm_error *error, const char *why) {
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_AUDIO, "%s", why);
}

static mllm_status read_format(const uint8_t *at, size_t size, mllm_wav *wav, mllm_error *error) {
  if (size < 16) return refuse(error, "the WAV file's format is cut short");
  const uint32_t kind = read16(at) == 0xFFFE && size >= 26 ? read16(at + 24) : read16(at);
  wav->channels = read16(at + 2);
  wav->rate = read32(at + 4);
  if (kind != 1 || read16(at + 14) != 16) return refuse(error, "the WAV file is not 16-bit PCM");
  if (wav->channels < 1 || wav->channels > 2)
    return refuse(error, "the WAV file has more than two channels");
  if (wav->rate < 1000 || wav->rate > 384000)
    return refuse(error, "the WAV file's sample rate is out of range");
  return MLLM_OK;
}

mllm_status mllm_wav_parse(const uint8_t *bytes, size_t size, mllm_wav *wav, mllm_error *error) {
  *wav = (mllm_wav){0};
  if (size < 12 || memcmp(bytes, "RIFF", 4) != 0 || memcmp(bytes + 8, "WAVE", 4) != 0)
    return refuse(error, "not a WAV file");
  for (size_t at = 12; size - at >= 8;) {
    const uint8_t *chunk = bytes + at;
    const size_t left = size - at - 8, wanted = read32(chunk + 4);
    const size_t length = wanted < left ? wanted : left; /* writers to a pipe leave it too large */
    if (memcmp(chunk, "fmt ", 4) == 0) {
      const mllm_status status = read_format(chunk + 8, length, wav, error);
      if (status != MLLM_OK) return status;
    }
    if (memcmp(chunk, "data", 4) == 0 && wav->channels > 0) {
      wav->samples = chunk + 8;
      wav->frames = length / (2 * wav->channels);
      return MLLM_OK;
    }
    at += 8 + length;
    if (length % 2 == 1 && at < size) at++;
  }
  return refuse(error, "the WAV file has no samples");
}

static float frame_at(const mllm_wav *wav, size_t frame) {
  const uint8_t *at = wav->samples + frame * 2 * wav->channels;
  int32_t sum = 0;
  for (uint32_t c = 0; c < wav->channels; c++) {
    const uint32_t bits = read16(at + 2 * (size_t)c);
    sum += bits < 0x8000 ? (int32_t)bits : (int32_t)bits - 0x10000;
  }
  return (float)sum / (float)wav->channels / 32768.0f;
}

size_t mllm_resampled_frames(size_t frames, uint32_t from, uint32_t rate) {
  return (size_t)((double)frames * rate / from);
}

/* Where output sample i lies between two input samples; false behind the last output sample. */
static bool between(size_t i, size_t frames, uint32_t from, uint32_t rate, size_t *left,
                    double *part) {
  if (i >= mllm_resampled_frames(frames, from, rate)) return false;
  const double at = (double)i * from / rate;
  *left = (size_t)at;
  *part = at - (double)*left;
  if (*left + 1 < frames) return true;
  *left = frames - 1;
  *part = 0.0;
  return true;
}

void mllm_wav_read(const mllm_wav *wav, uint32_t rate, float *out, size_t count) {
  size_t left;
  double part;
  for (size_t i = 0; i < count; i++) {
    out[i] = 0.0f;
    if (!between(i, wav->frames, wav->rate, rate, &left, &part)) continue;
    const double low = frame_at(wav, left);
    const double high = part > 0.0 ? frame_at(wav, left + 1) : low;
    out[i] = (float)(low + (high - low) * part);
  }
}

void mllm_resample(const float *samples, size_t frames, uint32_t from, uint32_t rate, float *out,
                   size_t count) {
  size_t left;
  double part;
  for (size_t i = 0; i < count; i++) {
    out[i] = 0.0f;
    if (!between(i, frames, from, rate, &left, &part)) continue;
    const double low = samples[left], high = part > 0.0 ? samples[left + 1] : samples[left];
    out[i] = (float)(low + (high - low) * part);
  }
}

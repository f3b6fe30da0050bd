#include "config.h"

#include <string.h>

#include "status.h"

static mllm_status refuse(mllm_error *error, const char *what) {
  mllm_locate(error, "config.json", NULL);
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CONFIG, "%s", what);
}

/* A list of `count` numbers; false: it is something else. */
static bool numbers(const mllm_json_value *list, uint32_t count, double *out) {
  if (list == NULL || list->kind != MLLM_JSON_ARRAY || list->count != count) return false;
  const mllm_json_value *item = mllm_json_first(list);
  for (uint32_t i = 0; i < count; i++, item = mllm_json_next(item)) {
    if (item->kind != MLLM_JSON_NUMBER) return false;
    out[i] = item->number;
  }
  return true;
}

static mllm_status read_image(mllm_config *config, const mllm_json_value *image,
                              mllm_error *error) {
  double size[2], mean[3], std[3];
  if (!numbers(mllm_json_get(image, "size"), 2, size) ||
      !numbers(mllm_json_get(image, "mean"), 3, mean) ||
      !numbers(mllm_json_get(image, "std"), 3, std))
    return refuse(error, "'image' lacks size, mean or std");
  for (int i = 0; i < 2; i++)
    if (!(size[i] >= 1 && size[i] <= MLLM_IMAGE_SIDE))
      return refuse(error, "'image.size' is out of range");
  config->image.height = (uint32_t)size[0];
  config->image.width = (uint32_t)size[1];
  const char *fit = mllm_json_text(image, "fit", "stretch");
  config->image.fit = strcmp(fit, "crop") == 0 ? MLLM_FIT_CROP : MLLM_FIT_STRETCH;
  for (int i = 0; i < 3; i++) {
    if (!(std[i] > 0)) return refuse(error, "'image.std' is not positive");
    config->image.mean[i] = (float)mean[i];
    config->image.std[i] = (float)std[i];
  }
  config->has_image = true;
  return MLLM_OK;
}

/* A positive setting of the sound; 0: out of range. */
static uint32_t setting(const mllm_json_value *audio, const char *key, int64_t fallback) {
  const int64_t value = mllm_json_int(audio, key, fallback);
  return value > 0 && value <= 1 << 20 ? (uint32_t)value : 0;
}

static mllm_status read_audio(mllm_config *config, const mllm_json_value *audio,
                              mllm_error *error) {
  mllm_audio_config *out = &config->audio;
  out->rate = setting(audio, "rate", 16000);
  out->n_fft = setting(audio, "n_fft", 400);
  out->hop = setting(audio, "hop", 160);
  out->mels = setting(audio, "mels", 80);
  const double window = mllm_json_number(audio, "window_s", 30.0);
  if (out->rate == 0 || out->n_fft == 0 || out->hop == 0 || out->mels == 0 ||
      !(window > 0 && window <= 600))
    return refuse(error, "'audio' is out of range");
  out->frames = (uint32_t)(window * out->rate / out->hop);
  config->has_audio = true;
  return MLLM_OK;
}

mllm_status mllm_config_read(mllm_config *config, const void *bytes, size_t size,
                             mllm_error *error) {
  *config = (mllm_config){0};
  if (!mllm_json_parse(&config->document, bytes, size))
    return refuse(error, config->document.fault);
  const mllm_json_value *root = config->document.values;
  config->text = mllm_json_get(root, "text");
  config->generation = mllm_json_get(root, "generation");
  const mllm_json_value *image = mllm_json_get(root, "image");
  const mllm_json_value *audio = mllm_json_get(root, "audio");
  mllm_status status = MLLM_OK;
  if (image != NULL && image->count > 0) status = read_image(config, image, error);
  if (status == MLLM_OK && audio != NULL && audio->count > 0)
    status = read_audio(config, audio, error);
  if (status != MLLM_OK) mllm_config_free(config);
  return status;
}

void mllm_config_free(mllm_config *config) {
  mllm_json_free(&config->document);
  *config = (mllm_config){0};
}

int64_t mllm_config_id(const mllm_json_value *list, uint32_t i) {
  if (list == NULL || list->kind != MLLM_JSON_ARRAY || i >= list->count) return -1;
  if (list->span != list->count + 1) return -1;
  const mllm_json_value *item = list + 1 + i;
  return item->is_integer && item->integer >= 0 && item->integer < UINT32_MAX ? item->integer : -1;
}

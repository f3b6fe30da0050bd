/* `config.json` of a bundle: how text, images and sound go in, and how tokens come out.
 *
 *   {"text":       {"stop": [2], "prompt": "Describe the picture.",
 *                   "template": {"plain": [...], "image": [...], "system": [...],
 *                                "image_system": [...]}},
 *    "image":      {"size": [height, width], "mean": [r, g, b], "std": [r, g, b], "fit":
 * "stretch"}, "audio":      {"rate": 16000, "n_fft": 400, "hop": 160, "mels": 80, "window_s": 30},
 *    "generation": {"forced_prompt": [..], "suppress": [..], "begin_suppress": [..],
 *                   "max_new_tokens": 128}}
 *
 * Every part may be absent, other keys are not read. A segment of a template is one of {"literal":
 * "text"}, {"prompt": true}, {"system": true} and {"image": true}; "trim": true cuts the white
 * space around what is put in. */
#ifndef MLLM_CONFIG_H
#define MLLM_CONFIG_H

#include <stdbool.h>

#include "audio.h"
#include "image.h"
#include "json.h"

#define MLLM_CODE_CONFIG "MLC-X021"
#define MLLM_CODE_LENGTH "MLC-X022"
#define MLLM_CODE_INPUT  "MLC-X025"

typedef struct mllm_config {
  mllm_json document;
  const mllm_json_value *text;
  const mllm_json_value *generation;
  bool has_image;
  bool has_audio;
  mllm_image_config image;
  mllm_audio_config audio;
} mllm_config;

/* Reads the member's bytes; they need not outlive the call. */
mllm_status mllm_config_read(mllm_config *config, const void *bytes, size_t size,
                             mllm_error *error);
void mllm_config_free(mllm_config *config);

/* The i-th token id of a list of ids, -1 where the list, which may be NULL, ends. */
int64_t mllm_config_id(const mllm_json_value *list, uint32_t i);

#endif

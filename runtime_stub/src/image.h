/* Pixels in: frames, reading PPM and npy, resizing as Pillow does, normalising. */
#ifndef MLLM_IMAGE_H
#define MLLM_IMAGE_H

#include <stdbool.h>

#include "file.h"

#define MLLM_CODE_IMAGE "MLC-X023"

enum { MLLM_IMAGE_SIDE = 1 << 15 }; /* the longest side that is accepted */

typedef enum mllm_fit {
  MLLM_FIT_STRETCH, /* to the size, whatever the shape */
  MLLM_FIT_CROP     /* the shorter side to the size, then the centre */
} mllm_fit;

typedef struct mllm_image_config {
  uint32_t width;
  uint32_t height;
  mllm_fit fit;
  float mean[3];
  float std[3];
} mllm_image_config;

/* Whether a prompt has a picture. */
bool mllm_shows(const mllm_prompt *prompt);

/* The picture of a prompt that has one, checked. */
mllm_status mllm_frame_of(const mllm_prompt *prompt, mllm_frame *frame, mllm_error *error);

/* RGB rows without gaps. */
mllm_frame mllm_frame_rgb(const uint8_t *rgb, uint32_t width, uint32_t height);

mllm_status mllm_frame_check(const mllm_frame *frame, mllm_error *error);

/* A row of a frame as RGB: where it lies, or converted into row, [width * 3]. */
const uint8_t *mllm_frame_row(const mllm_frame *frame, uint32_t y, uint8_t *row);

/* Finds the pixels in the bytes of a P6 PPM (maxval 255) or of a uint8 npy [height, width, 3]. */
mllm_status mllm_image_parse(const uint8_t *bytes, size_t size, mllm_frame *image,
                             mllm_error *error);

/* Resize (bicubic with antialiasing, in Pillow's fixed point), crop, (pixel / 255 - mean) / std: from where a
 * checked frame lies to `pixels`, float [3, height, width]. */
mllm_status mllm_image_prepare(const mllm_frame *frame, const mllm_image_config *config,
                               float *pixels, mllm_error *error);

#endif

/* Pixels in: reading PPM and npy, resizing as Pillow does, normalising. */
#ifndef MLLM_IMAGE_H
#define MLLM_IMAGE_H

#include "file.h"

#define MLLM_CODE_IMAGE "MLC-X023"

enum { MLLM_IMAGE_SIDE = 1 << 15 }; /* the longest side that is accepted */

/* Interleaved 8-bit RGB rows, within the caller's memory or a mapped file. */
typedef struct mllm_image {
  const uint8_t *rgb;
  uint32_t width;
  uint32_t height;
} mllm_image;

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

/* Finds the pixels in the bytes of a P6 PPM (maxval 255) or of a uint8 npy [height, width, 3]. */
mllm_status mllm_image_parse(const uint8_t *bytes, size_t size, mllm_image *image,
                             mllm_error *error);

/* Resizes (bicubic with antialiasing, in Pillow's fixed point) to width x height into `rgb`. */
mllm_status mllm_image_resize(const mllm_image *image, uint32_t width, uint32_t height,
                              uint8_t *rgb, mllm_error *error);

/* Resize, crop, (pixel / 255 - mean) / std: float [3, height, width] into `pixels`. */
mllm_status mllm_image_prepare(const mllm_image *image, const mllm_image_config *config,
                               float *pixels, mllm_error *error);

#endif

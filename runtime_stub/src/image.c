/* Resizing in two passes with 22-bit fixed-point weights: bit for bit what Pillow's BICUBIC gives.
 */
#include "image.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

enum { PRECISION = 22 };

/* For each output position: the first input position, how many there are, and their weights. */
typedef struct filter {
  uint32_t *first;
  uint32_t *count;
  int32_t *weights; /* [out][taps] */
  uint32_t taps;
} filter;

static double cubic(double x) {
  const double a = -0.5;
  x = fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

static void filter_free(filter *f) {
  free(f->first);
  free(f->count);
  free(f->weights);
}

/* The weights of one output position; `row` holds f->taps doubles of working memory. */
static void fill(filter *f, uint32_t out, uint32_t in_size, double scale, double *row) {
  const double stretch = scale > 1.0 ? scale : 1.0, support = 2.0 * stretch;
  const double centre = (out + 0.5) * scale;
  const double low = centre - support + 0.5, high = centre + support + 0.5;
  const uint32_t first = low < 0 ? 0 : (uint32_t)low;
  const uint32_t end = high > in_size ? in_size : (uint32_t)high;
  double sum = 0.0;
  for (uint32_t i = 0; i < end - first; i++) {
    row[i] = cubic(((double)i + first - centre + 0.5) * (1.0 / stretch));
    sum += row[i];
  }
  for (uint32_t i = 0; i < end - first; i++) {
    const double weight = (sum != 0.0 ? row[i] / sum : row[i]) * (1 << PRECISION);
    f->weights[(size_t)out * f->taps + i] = (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
  }
  f->first[out] = first;
  f->count[out] = end - first;
}

static bool filter_make(filter *f, uint32_t in_size, uint32_t out_size) {
  const double scale = (double)in_size / out_size, stretch = scale > 1.0 ? scale : 1.0;
  f->taps = (uint32_t)ceil(2.0 * stretch) * 2 + 1;
  f->first = malloc(out_size * sizeof *f->first);
  f->count = malloc(out_size * sizeof *f->count);
  f->weights = calloc((size_t)out_size * f->taps, sizeof *f->weights);
  double *row = malloc(f->taps * sizeof *row);
  const bool good = f->first != NULL && f->count != NULL && f->weights != NULL && row != NULL;
  for (uint32_t i = 0; good && i < out_size; i++) fill(f, i, in_size, scale, row);
  free(row);
  return good;
}

static uint8_t clip(int32_t sum) {
  const int32_t value = sum >> PRECISION; /* gcc and clang: arithmetic */
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One output sample from every `stride`-th byte. */
static uint8_t sample(const filter *f, uint32_t out, const uint8_t *from, size_t stride) {
  const int32_t *weights = f->weights + (size_t)out * f->taps;
  from += f->first[out] * stride;
  int32_t sum = 1 << (PRECISION - 1);
  for (uint32_t i = 0; i < f->count[out]; i++) sum += from[i * stride] * weights[i];
  return clip(sum);
}

/* Every row as wide as it will be: [height, width, 3], owned by the caller; NULL without memory. */
static uint8_t *narrowed(const mllm_frame *frame, uint32_t width) {
  filter across = {0};
  const size_t bytes = (size_t)width * 3;
  uint8_t *made = malloc(bytes * frame->height), *row = malloc((size_t)frame->width * 3);
  const bool good = made != NULL && row != NULL && filter_make(&across, frame->width, width);
  for (uint32_t y = 0; good && y < frame->height; y++) {
    const uint8_t *from = mllm_frame_row(frame, y, row);
    for (size_t x = 0; x < bytes; x++)
      made[y * bytes + x] = sample(&across, (uint32_t)(x / 3), from + x % 3, 3);
  }
  filter_free(&across);
  free(row);
  if (good) return made;
  free(made);
  return NULL;
}

/* The size before cropping: both sides at least what is asked for. */
static void covering(const mllm_frame *frame, const mllm_image_config *config, uint32_t *width,
                     uint32_t *height) {
  *width = config->width;
  *height = config->height;
  if (config->fit == MLLM_FIT_STRETCH) return;
  const uint64_t by_width = (uint64_t)frame->height * config->width / frame->width;
  if (by_width >= config->height) {
    *height = (uint32_t)by_width;
    return;
  }
  *width = (uint32_t)((uint64_t)frame->width * config->height / frame->height);
}

mllm_status mllm_image_prepare(const mllm_frame *frame, const mllm_image_config *config,
                               float *pixels, mllm_error *error) {
  uint32_t width, height;
  covering(frame, config, &width, &height);
  if (width > MLLM_IMAGE_SIDE || height > MLLM_IMAGE_SIDE)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_IMAGE, "the image is too narrow");
  filter down = {0};
  uint8_t *rows = narrowed(frame, width);
  const bool good = rows != NULL && filter_make(&down, frame->height, height);
  const uint32_t left = (width - config->width) / 2, top = (height - config->height) / 2;
  for (uint32_t c = 0; good && c < 3; c++)
    for (uint32_t y = 0; y < config->height; y++)
      for (uint32_t x = 0; x < config->width; x++) {
        const uint8_t *column = rows + (size_t)(left + x) * 3 + c;
        const float value = (float)sample(&down, top + y, column, (size_t)width * 3) / 255.0f;
        *pixels++ = (value - config->mean[c]) / config->std[c];
      }
  filter_free(&down);
  free(rows);
  if (good) return MLLM_OK;
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for an image");
}

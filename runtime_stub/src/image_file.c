/* PPM and npy: the two image files that need no decoder. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "image.h"
#include "status.h"

static mllm_status refuse(mllm_error *error, const char *why) {
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_IMAGE, "%s", why);
}

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* A number of a PPM header, behind spaces and comments; 0: none, or too large. */
static uint32_t ppm_number(const uint8_t *bytes, size_t size, size_t *at) {
  while (*at < size && (is_space(bytes[*at]) || bytes[*at] == '#')) {
    if (bytes[(*at)++] != '#') continue;
    while (*at < size && bytes[*at] != '\n') (*at)++;
  }
  uint32_t value = 0;
  for (; *at < size && bytes[*at] >= '0' && bytes[*at] <= '9'; (*at)++)
    value = value > MLLM_IMAGE_SIDE ? value : value * 10 + (bytes[*at] - '0');
  return value <= MLLM_IMAGE_SIDE ? value : 0;
}

static mllm_status take(const uint8_t *bytes, size_t size, size_t at, uint32_t width,
                        uint32_t height, mllm_frame *image, mllm_error *error) {
  if (at > size || (size_t)width * height * 3 > size - at)
    return refuse(error, "the image file ends inside its pixels");
  *image = mllm_frame_rgb(bytes + at, width, height);
  return MLLM_OK;
}

static mllm_status parse_ppm(const uint8_t *bytes, size_t size, mllm_frame *image,
                             mllm_error *error) {
  size_t at = 2;
  const uint32_t width = ppm_number(bytes, size, &at), height = ppm_number(bytes, size, &at);
  const uint32_t most = ppm_number(bytes, size, &at);
  if (width == 0 || height == 0) return refuse(error, "the PPM's size is missing or too large");
  if (most != 255) return refuse(error, "the PPM has more or fewer than 256 levels");
  if (at >= size || !is_space(bytes[at])) return refuse(error, "the PPM's header does not end");
  return take(bytes, size, at + 1, width, height, image, error);
}

/* The value behind a key of npy's header, which is a Python dictionary; NULL: none. */
static const char *npy_value(const char *header, const char *key) {
  const char *found = strstr(header, key);
  if (found == NULL) return NULL;
  found += strlen(key);
  while (*found == ' ' || *found == ':') found++;
  return found;
}

static mllm_status parse_npy(const uint8_t *bytes, size_t size, mllm_frame *image,
                             mllm_error *error) {
  char header[512];
  if (size < 12) return refuse(error, "the npy file ends inside its header");
  const bool wide = bytes[6] > 1;
  const size_t start = wide ? 12 : 10;
  size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
  if (wide) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
  if (length >= sizeof header || length > size - start)
    return refuse(error, "the npy file ends inside its header");
  memcpy(header, bytes + start, length);
  header[length] = '\0';
  const char *type = npy_value(header, "'descr'"), *order = npy_value(header, "'fortran_order'");
  const char *shape = npy_value(header, "'shape'");
  unsigned int height = 0, width = 0, channels = 0;
  if (type == NULL || (strncmp(type, "'|u1'", 5) != 0 && strncmp(type, "'<u1'", 5) != 0))
    return refuse(error, "the npy array is not uint8");
  if (order == NULL || strncmp(order, "False", 5) != 0)
    return refuse(error, "the npy array is in Fortran order");
  if (shape == NULL || sscanf(shape, "(%6u, %6u, %6u)", &height, &width, &channels) != 3 ||
      channels != 3 || height == 0 || width == 0 || height > MLLM_IMAGE_SIDE ||
      width > MLLM_IMAGE_SIDE)
    return refuse(error, "the npy array's shape is not [height, width, 3]");
  return take(bytes, size, start + length, width, height, image, error);
}

mllm_status mllm_image_parse(const uint8_t *bytes, size_t size, mllm_frame *image,
                             mllm_error *error) {
  if (size > 2 && bytes[0] == 'P' && bytes[1] == '6') return parse_ppm(bytes, size, image, error);
  if (size > 6 && memcmp(bytes, "\x93NUMPY", 6) == 0) return parse_npy(bytes, size, image, error);
  return refuse(error, "neither a P6 PPM nor an npy file");
}

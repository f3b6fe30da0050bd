/* Frames of a camera: what one may be, and its rows as RGB. Chroma of a block of four pixels counts for each
 * of them. The matrices are those of ITU-R BT.601 and BT.709, in 16-bit fixed point. */
#include "config.h"
#include "status.h"

enum { FRACTION = 16 };

static mllm_status refuse(mllm_error *error, const char *why) {
  mllm_locate(error, "frame", NULL);
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_IMAGE, "%s", why);
}

static mllm_status check_planes(const mllm_frame *frame, size_t row, mllm_error *error) {
  const size_t planes = frame->pixels == MLLM_NV12 ? 2 : 1;
  for (size_t i = 0; i < planes; i++) {
    if (frame->planes[i] == NULL) return refuse(error, "a plane of the frame is missing");
    if (frame->strides[i] < row)
      return refuse(error, "the rows of the frame are longer than its stride");
    if (frame->strides[i] > SIZE_MAX / frame->height)
      return refuse(error, "the stride of the frame is out of range");
  }
  return MLLM_OK;
}

mllm_status mllm_frame_check(const mllm_frame *frame, mllm_error *error) {
  if (frame->width == 0 || frame->height == 0 || frame->width > MLLM_IMAGE_SIDE ||
      frame->height > MLLM_IMAGE_SIDE)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_INPUT,
                     "the image's size is out of range");
  if (frame->pixels == MLLM_RGB8) return check_planes(frame, (size_t)frame->width * 3, error);
  if (frame->pixels != MLLM_NV12) return refuse(error, "the frame's pixels are of no known kind");
  if (frame->colours > MLLM_BT709_FULL)
    return refuse(error, "the frame's colours are of no known kind");
  if (frame->width % 2 != 0 || frame->height % 2 != 0)
    return refuse(error, "width and height of an NV12 frame are even");
  return check_planes(frame, frame->width, error);
}

bool mllm_shows(const mllm_prompt *prompt) { return prompt->rgb != NULL || prompt->frame != NULL; }

mllm_status mllm_frame_of(const mllm_prompt *prompt, mllm_frame *frame, mllm_error *error) {
  if (prompt->rgb != NULL && prompt->frame != NULL)
    return refuse(error, "the prompt has a frame and an image");
  if (prompt->frame != NULL)
    *frame = *prompt->frame;
  else
    *frame = mllm_frame_rgb(prompt->rgb, prompt->width, prompt->height);
  return mllm_frame_check(frame, error);
}

mllm_frame mllm_frame_rgb(const uint8_t *rgb, uint32_t width, uint32_t height) {
  return (mllm_frame){.pixels = MLLM_RGB8,
                      .width = width,
                      .height = height,
                      .planes = {rgb},
                      .strides = {(size_t)width * 3}};
}

/* What luma and chroma count for, in 2^-16. */
typedef struct weights {
  int32_t black; /* the luma of black */
  int32_t luma;
  int32_t red_v, green_u, green_v, blue_u;
} weights;

static int32_t fixed(double x) { return (int32_t)(x * (1 << FRACTION) + 0.5); }

static weights weights_of(uint32_t colours) {
  const bool hd = colours == MLLM_BT709 || colours == MLLM_BT709_FULL;
  const bool full = colours == MLLM_BT601_FULL || colours == MLLM_BT709_FULL;
  const double red = hd ? 0.2126 : 0.299, blue = hd ? 0.0722 : 0.114, green = 1.0 - red - blue;
  const double chroma = full ? 1.0 : 255.0 / 224.0;
  return (weights){.black = full ? 0 : 16,
                   .luma = fixed(full ? 1.0 : 255.0 / 219.0),
                   .red_v = fixed(2.0 * (1.0 - red) * chroma),
                   .green_u = fixed(2.0 * blue * (1.0 - blue) / green * chroma),
                   .green_v = fixed(2.0 * red * (1.0 - red) / green * chroma),
                   .blue_u = fixed(2.0 * (1.0 - blue) * chroma)};
}

static uint8_t level(int32_t sum) {
  const int32_t value = (sum + (1 << (FRACTION - 1))) >> FRACTION; /* gcc and clang: arithmetic */
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

const uint8_t *mllm_frame_row(const mllm_frame *frame, uint32_t y, uint8_t *row) {
  const uint8_t *luma = frame->planes[0] + (size_t)y * frame->strides[0];
  if (frame->pixels == MLLM_RGB8) return luma;
  const uint8_t *chroma = frame->planes[1] + (size_t)(y / 2) * frame->strides[1];
  const weights w = weights_of(frame->colours);
  for (uint32_t x = 0; x < frame->width; x++) {
    const int32_t bright = (luma[x] - w.black) * w.luma;
    const int32_t u = chroma[x / 2 * 2] - 128, v = chroma[x / 2 * 2 + 1] - 128;
    row[3 * x] = level(bright + v * w.red_v);
    row[3 * x + 1] = level(bright - u * w.green_u - v * w.green_v);
    row[3 * x + 2] = level(bright + u * w.blue_u);
  }
  return row;
}

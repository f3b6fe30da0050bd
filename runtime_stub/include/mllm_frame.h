/* mllm_frame.h - pictures as a camera leaves them, for the prompts of mllm.h. */
#ifndef MLLM_FRAME_H
#define MLLM_FRAME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mllm_pixels {
  MLLM_RGB8 = 0, /* one plane: rows of red, green, blue */
  MLLM_NV12 = 1  /* two: rows of luma; rows of blue and red chroma, at half of both sizes */
} mllm_pixels;

/* What luma and chroma are: ITU-R BT.601 or BT.709, luma from 16 to 235 or from 0 to 255. */
typedef enum mllm_colours {
  MLLM_BT601 = 0,
  MLLM_BT601_FULL = 1,
  MLLM_BT709 = 2,
  MLLM_BT709_FULL = 3
} mllm_colours;

/* A picture as a camera leaves it, in whatever memory: it is read where it lies, row by row. */
typedef struct mllm_frame {
  uint32_t pixels;  /* mllm_pixels */
  uint32_t colours; /* mllm_colours, of MLLM_NV12 */
  uint32_t width;   /* of MLLM_NV12: even, as is the height */
  uint32_t height;
  const uint8_t *planes[2];
  size_t strides[2]; /* bytes from one row of a plane to the next */
} mllm_frame;

#ifdef __cplusplus
}
#endif

#endif /* MLLM_FRAME_H */

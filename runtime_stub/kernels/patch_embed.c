/* patch_embed.c - f32_patch_embed: square patches, row-major, projected by packed weights. */
#include "gemm_driver.h"
#include "operands.h"

typedef struct patches {
  const float *pixels; /* [B, channels, height, width] */
  size_t channels, height, width;
  size_t patch;
  size_t down, across; /* patches */
} patches;

/* Patch `row` of all images, values k.. of its [channels, patch, patch]. */
static void copy_patch(const patches *p, size_t row, size_t k, size_t depth, float *to) {
  const size_t across = row % p->across;
  const size_t down = row / p->across % p->down;
  const float *image = p->pixels + row / p->across / p->down * p->channels * p->height * p->width;
  for (size_t done = 0; done < depth;) {
    const size_t x = (k + done) % p->patch;
    const size_t y = (k + done) / p->patch % p->patch;
    const size_t channel = (k + done) / p->patch / p->patch;
    const size_t run = p->patch - x < depth - done ? p->patch - x : depth - done;
    const float *from = image + (channel * p->height + down * p->patch + y) * p->width;
    memcpy(to + done, from + across * p->patch + x, run * sizeof(float));
    done += run;
  }
}

/* A few values of all rows at a time, side by side, then packed. */
static void pack_patches(const void *source, const mllm_gemm_ops *ops, float *packed, size_t row,
                         size_t count, size_t k, size_t depth) {
  enum { PART = 256 };
  float rows[MLLM_TILE_ROWS][PART];
  for (size_t d = 0; d < depth; d += PART) {
    const size_t part = depth - d < PART ? depth - d : PART;
    for (size_t r = 0; r < count; r++) copy_patch(source, row + r, k + d, part, rows[r]);
    ops->pack_rows(packed + d * ops->tile_rows, rows[0], PART, count, part, 1.0F);
  }
}

mllm_status mllm_k_f32_patch_embed(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  const mllm_view *w = mllm_input(call, 1);
  if (call->n_in < 2 || call->n_in > 3 || call->n_out != 1 || call->n_params != 2) {
    return MLLM_REJECT(call, "f32_patch_embed takes pixels, w, bias and 2 params");
  }
  const mllm_view *y = &call->out[0];
  const int64_t patch = call->params[0];
  const int64_t n = call->params[1];
  if (!mllm_is_f32(x, 4) || !mllm_is_f32(w, 3) || !mllm_is_f32(y, 3) || patch < 1 ||
      patch > 1 << 16 || n < 0 || w->dims[0] != n / MLLM_PANEL + (n % MLLM_PANEL != 0) ||
      w->dims[2] != MLLM_PANEL || !mllm_is_vector_or_absent(mllm_input(call, 2), (size_t)n)) {
    return MLLM_REJECT(call, "f32_patch_embed: w is not [ceil(n / 16), C * p * p, 16]");
  }
  patches p = {.pixels = x->data,
               .channels = mllm_extent(x, 1),
               .height = mllm_extent(x, 2),
               .width = mllm_extent(x, 3),
               .patch = (size_t)patch};
  p.down = p.height / p.patch;
  p.across = p.width / p.patch;
  if (mllm_elements(y) == 0) return MLLM_OK;
  if (y->dims[0] != x->dims[0] || mllm_extent(y, 1) != p.down * p.across || y->dims[2] != n ||
      p.channels > SIZE_MAX / (p.patch * p.patch) ||
      mllm_extent(w, 1) != p.channels * p.patch * p.patch) {
    return MLLM_REJECT(call, "f32_patch_embed: y is not [B, patches, n]");
  }
  mllm_gemm_run(call->context, &(mllm_gemm){.rows = mllm_extent(y, 0) * mllm_extent(y, 1),
                                            .depth = mllm_extent(w, 1),
                                            .columns = (size_t)n,
                                            .pack = pack_patches,
                                            .source = &p,
                                            .b = w->data,
                                            .bias = mllm_input(call, 2)->data,
                                            .c = y->data,
                                            .c_stride = (size_t)n});
  return MLLM_OK;
}

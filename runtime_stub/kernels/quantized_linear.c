/* quantized_linear.c - rows of codes by a weight of codes: exact sums, scaled in double precision
 * in the order of their blocks, rounded once.
 *
 * An item is a few rows and a stretch of panels. Its rows are laid out as tiles read them, a chunk
 * of the depth at a time; what is summed of each panel waits in scratch. */
#include "code_operands.h"
#include "columns.h"

enum {
  CHUNK = 1024,
  BYTES = CHUNK * MLLM_QUAD, /* of a row's chunk where each code is a span */
  PANELS = 64,
  ITEMS_PER_THREAD = 4,
  ROW_BYTES = BYTES + 2 * CHUNK * sizeof(int32_t) + 2 * PANELS * MLLM_PANEL * sizeof(double)
};
_Static_assert((MLLM_TILE_ROWS + 1) * ROW_BYTES <= MLLM_SCRATCH_BYTES, "rows of an item, and ones");
_Static_assert((size_t)CHUNK <= (size_t)MLLM_TILE_DEPTH, "sums of 32 bits");

typedef struct job {
  const mllm_tile_ops *ops;
  size_t tile_rows;
  mllm_codes codes;
  const mllm_view *x;       /* [rows, depth] */
  const mllm_view *x_scale; /* of all, or of each row, or of each row and block */
  const mllm_view *x_zero;  /* likewise, or absent */
  size_t x_scales;          /* of a row; 0: one for all */
  size_t x_zeros;
  bool has_zeros; /* x has, less what its bytes with sign are of its codes */
  bool is_in_place; /* x is what tiles read: bytes with sign, spans of whole fours */
  const float *bias;
  const mllm_view *out; /* outputs, whose columns stand one behind another */
  size_t rows, panels;
  size_t tiles;   /* of rows */
  size_t stretch; /* panels of an item */
} job;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Codes k.. of a row, span behind span, from and to multiples of four. */
static void lay_out(const job *j, size_t row, size_t k, size_t depth, int8_t *x, int32_t *sums,
                    int32_t *zeros) {
  const bool is_signed = j->x->dtype == MLLM_I8;
  const uint8_t flip = is_signed ? 0 : 128;
  const uint8_t *codes = (const uint8_t *)j->x->data + row * j->codes.depth;
  for (const size_t limit = k + depth; k < limit;) {
    const size_t end = mllm_code_span(&j->codes, k, limit);
    const size_t before = k % MLLM_QUAD, after = (MLLM_QUAD - end % MLLM_QUAD) % MLLM_QUAD;
    int32_t sum = 0;
    memset(x, 0, before);
    x += before;
    for (size_t i = 0; i < end - k; i++) {
      x[i] = (int8_t)(codes[k + i] ^ flip);
      sum += x[i];
    }
    x += end - k;
    memset(x, 0, after);
    x += after;
    *sums++ = sum;
    const size_t at = row * j->x_zeros + (j->x_zeros > 1 ? k / j->codes.block : 0);
    *zeros++ = (mllm_is_present(j->x_zero) ? mllm_byte_at(j->x_zero, at) : 0) - flip;
    k = end;
  }
}

/* The sums of spans of a row that tiles read as they lie in x. */
static void sum_spans(const job *j, size_t row, size_t k, size_t depth, int32_t *sums) {
  const int8_t *codes = (const int8_t *)j->x->data + row * j->codes.depth;
  for (const size_t limit = k + depth; k < limit;) {
    const size_t end = mllm_code_span(&j->codes, k, limit);
    *sums++ = j->ops->sum(codes + k, end - k);
    k = end;
  }
}

/* As a row of x whose codes are all 1. */
static void lay_out_ones(const job *j, size_t k, size_t depth, int8_t *x) {
  for (const size_t limit = k + depth; k < limit;) {
    const size_t end = mllm_code_span(&j->codes, k, limit);
    const size_t first = k / MLLM_QUAD * MLLM_QUAD;
    const size_t last = (end + MLLM_QUAD - 1) / MLLM_QUAD * MLLM_QUAD;
    for (size_t i = first; i < last; i++) *x++ = i >= k && i < end;
    k = end;
  }
}

/* y = sums * x_scale + bias, of one panel */
static void finish(const job *j, size_t row, size_t rows, size_t panel, const double *sums) {
  const mllm_panel_place place = mllm_place_of(j->out, panel);
  const float *bias = j->bias == NULL ? NULL : j->bias + panel * MLLM_PANEL;
  const bool scaled = j->x_scales > 1 || j->x_zeros > 1;
  const float *scale = j->x_scale->data;
  for (size_t r = 0; r < rows; r++) {
    float *y = place.y + (row + r) * place.stride;
    const double factor = scaled ? 1.0 : (double)scale[(row + r) * j->x_scales];
    for (size_t i = 0; i < place.width; i++) {
      const double value = sums[r * MLLM_PANEL + i] * factor;
      y[i] = (float)(bias == NULL ? value : value + (double)bias[i]);
    }
  }
}

static void run_item(const job *j, size_t item, void *scratch) {
  const size_t row = item % j->tiles * j->tile_rows;
  const size_t first = item / j->tiles * j->stretch;
  const size_t rows = smaller(j->tile_rows, j->rows - row);
  const size_t panels = smaller(j->stretch, j->panels - first);
  const size_t tile_size = rows * MLLM_PANEL;
  double *y = scratch;
  double *sums = y + panels * tile_size;
  int32_t *x_sums = (int32_t *)(sums + panels * tile_size);
  int32_t *x_zeros = x_sums + rows * CHUNK;
  int8_t *x = (int8_t *)(x_zeros + rows * CHUNK);
  const bool in_blocks = j->x_scales > 1 || j->x_zeros > 1;
  memset(y, 0, 2 * panels * tile_size * sizeof *y);
  mllm_code_tile tile = {.codes = &j->codes,
                         .rows = rows,
                         .x = x,
                         .x_stride = j->is_in_place ? j->codes.depth : BYTES,
                         .x_sums = x_sums,
                         .x_zeros = j->has_zeros ? x_zeros : NULL,
                         .x_spans = CHUNK};
  if (in_blocks) {
    tile.x_scale = (const float *)j->x_scale->data + row * j->x_scales;
    tile.x_scale_row = j->x_scales;
    tile.x_scale_block = j->x_scales > 1 ? 1 : 0;
  }
  for (size_t k = 0; k < j->codes.depth; k += CHUNK) {
    tile.k = k;
    tile.depth = smaller(CHUNK, j->codes.depth - k);
    for (size_t r = 0; r < rows; r++) {
      if (j->is_in_place)
        sum_spans(j, row + r, k, tile.depth, x_sums + r * CHUNK);
      else
        lay_out(j, row + r, k, tile.depth, x + r * BYTES, x_sums + r * CHUNK, x_zeros + r * CHUNK);
    }
    if (j->is_in_place) tile.x = (const int8_t *)j->x->data + row * j->codes.depth + k;
    if (j->has_zeros) lay_out_ones(j, k, tile.depth, x + rows * BYTES);
    for (size_t p = 0; p < panels; p++) {
      tile.panel = first + p;
      tile.y = y + p * tile_size;
      tile.sums = sums + p * tile_size;
      j->ops->tile(&tile);
    }
  }
  for (size_t p = 0; p < panels; p++) finish(j, row, rows, first + p, y + p * tile_size);
}

static void run_items(void *argument, size_t begin, size_t end, void *scratch) {
  for (size_t item = begin; item < end; item++) run_item(argument, item, scratch);
}

/* A parameter of rows: a scalar, [..., 1] or [..., blocks]; how many a row has, 0 where all share
 * one. False where it is none of these. */
static bool of_rows(const mllm_view *parameter, const mllm_view *x, size_t blocks, size_t *count) {
  *count = 0;
  if (parameter->rank == 0) return true;
  if (parameter->rank != x->rank || !mllm_same_leading(parameter, x, x->rank - 1)) return false;
  *count = mllm_extent(parameter, x->rank - 1);
  return *count == 1 || *count == blocks;
}

/* x, x_scale, w, w_scale, w_zero, x_zero, bias; n, code, zero_code, block_size. */
static mllm_status read_call(const mllm_call *call, job *j) {
  if (call->n_in < 4 || call->n_in > 7 || call->n_params != 4) {
    return MLLM_REJECT(call, "quantized_linear takes 4 to 7 operands and 4 params");
  }
  const int64_t n = call->params[0];
  const mllm_code_params params = {call->params[1], call->params[2], call->params[3]};
  j->x = mllm_input(call, 0);
  j->x_scale = mllm_input(call, 1);
  j->x_zero = mllm_input(call, 5);
  if (!mllm_is_byte(j->x) || j->x->rank == 0 || n < 0) {
    return MLLM_REJECT(call, "quantized_linear: x is i8 or u8 of one axis or more");
  }
  const uint32_t last = j->x->rank - 1;
  if (!mllm_codes_make(call, 2, (size_t)n, mllm_extent(j->x, last), &params, &j->codes)) {
    return MLLM_REJECT(call, "quantized_linear: codes, scale or zero point do not fit [n, K]");
  }
  if (j->x_scale->dtype != MLLM_F32 || !of_rows(j->x_scale, j->x, j->codes.blocks, &j->x_scales)) {
    return MLLM_REJECT(call, "quantized_linear: x_scale is not f32 [..., 1] or [..., blocks]");
  }
  if (mllm_is_present(j->x_zero) && (j->x_zero->dtype != j->x->dtype ||
                                     !of_rows(j->x_zero, j->x, j->codes.blocks, &j->x_zeros))) {
    return MLLM_REJECT(call, "quantized_linear: x_zero is not x's type [..., 1] or [..., blocks]");
  }
  if (!mllm_is_vector_or_absent(mllm_input(call, 6), (size_t)n) ||
      !mllm_are_columns(call, j->x, n)) {
    return MLLM_REJECT(call, "quantized_linear: bias is not [n], or y not [..., n], cut at panels");
  }
  j->rows = mllm_product(j->x, 0, last);
  j->panels = mllm_panels_of((size_t)n);
  return MLLM_OK;
}

mllm_status mllm_k_quantized_linear(const mllm_call *call) {
  job j = {.ops = call->context->ops->tiles};
  const mllm_status status = read_call(call, &j);
  if (status != MLLM_OK) return status;
  if (j.rows == 0 || j.panels == 0) return MLLM_OK;
  j.bias = mllm_input(call, 6)->data;
  j.out = call->out;
  j.has_zeros = mllm_is_present(j.x_zero) || j.x->dtype == MLLM_U8;
  j.is_in_place = !j.has_zeros && j.codes.depth % MLLM_QUAD == 0 &&
                  (j.codes.block % MLLM_QUAD == 0 || j.codes.blocks == 1);
  j.tile_rows = j.ops->rows - (j.has_zeros ? 1U : 0U);
  j.tiles = (j.rows + j.tile_rows - 1) / j.tile_rows;
  const size_t wanted = mllm_threads_count(call->context->threads) * (size_t)ITEMS_PER_THREAD;
  const size_t split = (wanted + j.tiles - 1) / j.tiles;
  j.stretch = smaller(PANELS, (j.panels + split - 1) / split);
  const size_t stretches = (j.panels + j.stretch - 1) / j.stretch;
  mllm_parallel_for(call->context->threads, j.tiles * stretches, 1, run_items, &j);
  return MLLM_OK;
}

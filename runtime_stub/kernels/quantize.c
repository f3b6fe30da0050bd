/* quantize.c - reals to codes: quantize, with given scales, and dynamic_quantize, with those of the
 * data. Everything is rounded as the reference rounds it. */
#include "code_walk.h"

enum { GRAIN = 4096 /* elements that are worth a chunk */ };

/* The codes of a type. */
typedef struct code_range {
  int32_t low;
  int32_t high;
} code_range;

static bool range_of(uint32_t dtype, code_range *range) {
  switch (dtype) {
    case MLLM_I8: *range = (code_range){INT8_MIN, INT8_MAX}; return true;
    case MLLM_U8: *range = (code_range){0, UINT8_MAX}; return true;
    case MLLM_I16: *range = (code_range){INT16_MIN, INT16_MAX}; return true;
    case MLLM_U16: *range = (code_range){0, UINT16_MAX}; return true;
    default: return false;
  }
}

/* To the nearest, half to even, for |x| < 2^22: 1.5 * 2^23 is a float that counts in ones. */
static inline float nearest(float x) { return (x + 12582912.0F) - 12582912.0F; }

static inline float clamp(float x, float low, float high) {
  const float raised = x < low ? low : x;
  return raised > high ? high : raised;
}

/* clamp(round(x / scale) + zero); 0 of NaN. */
static inline int32_t code_of(float x, float scale, int32_t zero, code_range range) {
  const float quotient = x / scale;
  const float number = quotient != quotient ? 0.0F : quotient;
  const float bounded =
      clamp(number, (float)(range.low - zero - 1), (float)(range.high - zero + 1));
  int32_t code = (int32_t)nearest(bounded) + zero;
  code = code < range.low ? range.low : code;
  code = code > range.high ? range.high : code;
  return quotient != quotient ? 0 : code;
}

static inline void write_code(const mllm_view *y, size_t i, int32_t code) {
  switch (y->dtype) {
    case MLLM_I8: ((int8_t *)y->data)[i] = (int8_t)code; return;
    case MLLM_U8: ((uint8_t *)y->data)[i] = (uint8_t)code; return;
    case MLLM_I16: ((int16_t *)y->data)[i] = (int16_t)code; return;
    default: ((uint16_t *)y->data)[i] = (uint16_t)code; return;
  }
}

/* y[begin..] of x, all with one scale; bytes as vectors, as there are many. */
static void quantize_run(const mllm_code_ops *ops, const mllm_view *y, const float *x, size_t begin,
                         size_t count, float scale, int32_t zero, code_range range) {
  if (mllm_dtype_bytes(y->dtype) == 1) {
    const mllm_code_rule rule = {scale, zero, range.low, range.high};
    ops->bytes((uint8_t *)y->data + begin, x + begin, count, rule);
    return;
  }
  for (size_t i = begin; i < begin + count; i++) {
    write_code(y, i, code_of(x[i], scale, zero, range));
  }
}

typedef struct given_job {
  mllm_code_walk walk;
  const mllm_code_ops *ops;
  const mllm_view *x;
  const mllm_view *scale;
  const mllm_view *zero;
  const mllm_view *y;
  code_range range;
} given_job;

static void given_run(const void *argument, const mllm_code_run *run) {
  const given_job *j = argument;
  const float *x = j->x->data;
  const float *scale = j->scale->data;
  if (run->scale_step == 0 && run->zero_step == 0) {
    const int32_t zero = (int32_t)mllm_integer_at(j->zero, run->zero);
    quantize_run(j->ops, j->y, x, run->begin, run->count, scale[run->scale], zero, j->range);
    return;
  }
  for (size_t i = 0; i < run->count; i++) {
    const int32_t zero = (int32_t)mllm_integer_at(j->zero, run->zero + i * run->zero_step);
    const float own = scale[run->scale + i * run->scale_step];
    write_code(j->y, run->begin + i, code_of(x[run->begin + i], own, zero, j->range));
  }
}

static void given_items(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const given_job *j = argument;
  for (size_t item = begin; item < end; item++) {
    mllm_code_walk_item(&j->walk, item, given_run, j);
  }
}

mllm_status mllm_k_quantize(const mllm_call *call) {
  if (call->n_in < 2 || call->n_in > 3 || call->n_out != 1 || call->n_params != 2) {
    return MLLM_REJECT(call, "quantize takes x, scale, zero point, axis and block_size");
  }
  given_job j = {.ops = call->context->ops->codes,
                 .x = mllm_input(call, 0),
                 .scale = mllm_input(call, 1),
                 .zero = mllm_input(call, 2),
                 .y = &call->out[0]};
  if (j.x->dtype != MLLM_F32 || j.scale->dtype != MLLM_F32 || !range_of(j.y->dtype, &j.range) ||
      (mllm_is_present(j.zero) && j.zero->dtype != j.y->dtype) || !mllm_same_dims(j.x, j.y) ||
      !mllm_code_walk_make(j.x, j.scale, j.zero, call->params[0], call->params[1], &j.walk)) {
    return MLLM_REJECT(call, "quantize: f32 to 8 or 16 bits; scale and zero point repeat to x");
  }
  if (mllm_elements(j.x) == 0) return MLLM_OK;
  mllm_parallel_for(call->context->threads, mllm_code_walk_items(&j.walk), 1, given_items, &j);
  return MLLM_OK;
}

/* x as [outer, length, inner]: each block of a line of `length` has one scale. */
typedef struct dynamic_job {
  const mllm_code_ops *ops;
  const float *x;
  const mllm_view *y;
  float *scale;          /* [outer, blocks, inner] */
  const mllm_view *zero; /* likewise, or NULL: symmetric */
  size_t length, inner, block, blocks;
  code_range range;
} dynamic_job;

static inline float greater(float a, float b) { return a > b || a != a ? a : b; }
static inline float lesser(float a, float b) { return a < b || a != a ? a : b; }

static void scale_block(const dynamic_job *j, size_t item, float least, float most, float *scale,
                        int32_t *zero) {
  const float low = (float)j->range.low;
  const float high = (float)j->range.high;
  *scale = j->zero == NULL ? greater(most, -least) / high : (most - least) / (high - low);
  *scale = *scale == 0.0F ? 1.0F : *scale;
  j->scale[item] = *scale;
  *zero = 0;
  if (j->zero == NULL) return;
  const float point = low - least / *scale;
  *zero = point != point ? 0 : (int32_t)nearest(clamp(point, low, high));
  write_code(j->zero, item, *zero);
}

static void quantize_block(const dynamic_job *j, size_t item) {
  const size_t inner = item % j->inner;
  const size_t block = item / j->inner % j->blocks;
  const size_t outer = item / j->inner / j->blocks;
  const size_t first = block * j->block;
  const size_t count = j->length - first < j->block ? j->length - first : j->block;
  const size_t begin = (outer * j->length + first) * j->inner + inner;
  float least = 0.0F;
  float most = 0.0F;
  if (j->inner == 1) j->ops->bounds(j->x + begin, count, &least, &most);
  for (size_t i = 0; j->inner != 1 && i < count; i++) {
    const float value = j->x[begin + i * j->inner];
    least = lesser(value, least);
    most = greater(value, most);
  }
  float scale;
  int32_t zero;
  scale_block(j, item, least, most, &scale, &zero);
  if (j->inner == 1) {
    quantize_run(j->ops, j->y, j->x, begin, count, scale, zero, j->range);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    const size_t at = begin + i * j->inner;
    write_code(j->y, at, code_of(j->x[at], scale, zero, j->range));
  }
}

static void quantize_blocks(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  for (size_t item = begin; item < end; item++) quantize_block(argument, item);
}

/* Scale or zero point has x's dims but along the axis, where it has the blocks; or is a scalar. */
static bool is_of_blocks(const mllm_view *parameter, const mllm_view *x, int64_t axis,
                         size_t blocks) {
  if (axis < 0) return parameter->rank == 0;
  if (parameter->rank != x->rank) return false;
  for (uint32_t i = 0; i < x->rank; i++) {
    const size_t wanted = i == (uint32_t)axis ? blocks : mllm_extent(x, i);
    if (mllm_extent(parameter, i) != wanted) return false;
  }
  return true;
}

/* Axis (-1: one scale for all) and block_size (0: the whole axis). */
static bool read_lines(const mllm_call *call, dynamic_job *j) {
  const mllm_view *x = &call->in[0];
  const int64_t axis = call->params[0];
  const int64_t size = call->params[1];
  if (axis < -1 || axis >= (int64_t)x->rank || size < 0 || (axis < 0 && size > 0)) return false;
  const uint32_t a = axis < 0 ? 0 : (uint32_t)axis;
  j->length = axis < 0 ? mllm_elements(x) : mllm_extent(x, a);
  j->inner = axis < 0 ? 1 : mllm_product(x, a + 1, x->rank);
  j->block = size > 0 ? (size_t)size : j->length > 0 ? j->length : 1;
  j->blocks = size > 0 ? j->length / j->block + (j->length % j->block != 0) : 1;
  return true;
}

mllm_status mllm_k_dynamic_quantize(const mllm_call *call) {
  if (call->n_in != 1 || call->n_out < 2 || call->n_out > 3 || call->n_params != 2) {
    return MLLM_REJECT(call, "dynamic_quantize takes x, axis and block_size; gives 2 or 3 results");
  }
  const mllm_view *x = &call->in[0];
  const mllm_view *scale = &call->out[1];
  dynamic_job j = {.ops = call->context->ops->codes,
                   .x = x->data,
                   .y = &call->out[0],
                   .scale = scale->data,
                   .zero = call->n_out == 3 ? &call->out[2] : NULL};
  if (x->dtype != MLLM_F32 || scale->dtype != MLLM_F32 || !range_of(j.y->dtype, &j.range) ||
      !mllm_same_dims(x, j.y) || !read_lines(call, &j) ||
      !is_of_blocks(scale, x, call->params[0], j.blocks) ||
      (j.zero != NULL && (j.zero->dtype != j.y->dtype ||
                          !is_of_blocks(j.zero, x, call->params[0], j.blocks)))) {
    return MLLM_REJECT(call, "dynamic_quantize: f32 to codes; a scale for each block of the axis");
  }
  mllm_parallel_for(call->context->threads, mllm_elements(scale), GRAIN / j.block + 1,
                    quantize_blocks, &j);
  return MLLM_OK;
}

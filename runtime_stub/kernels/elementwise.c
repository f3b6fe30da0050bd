/* elementwise.c - f32_elementwise: a postfix program over broadcast operands.
 *
 * The result is cut into tiles that stay in the first level cache; on each, the words run one after
 * the other over the whole tile. The stack holds pointers: an operand that is dense and f32 is read
 * where it lies, and the last word writes to the result. */
#include "elementwise_program.h"

typedef struct tile {
  size_t start; /* first element of the result */
  size_t count;
  float *stack; /* [MLLM_EW_DEPTH, MLLM_EW_TILE] scratch */
} tile;

/* n elements from `offset` on, `step` apart, as floats */
static void convert(const mllm_view *x, size_t offset, size_t step, float *to, size_t n) {
#define FROM(type)                                                \
  {                                                               \
    const type *from = (const type *)x->data + offset;            \
    for (size_t i = 0; i < n; i++) to[i] = (float)from[i * step]; \
    return;                                                       \
  }
  switch (x->dtype) {
    case MLLM_F32: FROM(float)
    case MLLM_F64: FROM(double)
    case MLLM_I64: FROM(int64_t)
    case MLLM_I32: FROM(int32_t)
    case MLLM_I16: FROM(int16_t)
    case MLLM_I8: FROM(int8_t)
    case MLLM_U64: FROM(uint64_t)
    case MLLM_U32: FROM(uint32_t)
    case MLLM_U16: FROM(uint16_t)
    default: FROM(uint8_t)
  }
#undef FROM
}

static void load_operand(const mllm_elementwise *p, uint64_t index, const tile *t, float *to) {
  const mllm_view *x = &p->in[index];
  const mllm_walk *walk = &p->walks[index];
  for (size_t done = 0; done < t->count;) {
    size_t run = 0;
    const size_t offset = mllm_walk_at(walk, t->start + done, &run);
    if (walk->rank == 0) run = t->count;
    const size_t n = run < t->count - done ? run : t->count - done;
    convert(x, offset, mllm_walk_step(walk), to + done, n);
    done += n;
  }
}

static void select_values(float *y, const float *condition, const float *a, const float *b,
                          size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = condition[i] != 0.0F ? a[i] : b[i];
}

static void fill(float *to, float value, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = value;
}

/* Reads the result in place of a copy where the operand's memory is the tile itself. */
static const float *push_operand(const mllm_elementwise *p, uint64_t index, const tile *t,
                                 float *slot) {
  const mllm_view *x = &p->in[index];
  if (x->dtype == MLLM_F32 && mllm_walk_is_dense(&p->walks[index]) && p->walks[index].rank == 1) {
    return (const float *)x->data + t->start;
  }
  load_operand(p, index, t, slot);
  return slot;
}

/* Runs the words over a tile; the last one that computes writes to `result`. Gives where the value
 * is: `result`, or an operand that the program only loads. */
static const float *run_words(const mllm_elementwise *p, const tile *t, float *result) {
  const float *values[MLLM_EW_DEPTH] = {NULL};
  size_t depth = 0;
  for (size_t i = 0; i < p->words.count; i++) {
    const int64_t word = p->words.values[i];
    const uint64_t op = mllm_word_op(word);
    if (op == MLLM_EW_LOAD) {
      values[depth] = push_operand(p, mllm_word_arg(word), t, t->stack + depth * MLLM_EW_TILE);
      depth++;
      continue;
    }
    if (mllm_op_is_constant(op)) {
      const int64_t bits = p->words.values[++i];
      float *slot = t->stack + depth * MLLM_EW_TILE;
      fill(slot, op == MLLM_EW_CONST ? (float)mllm_param_double(bits) : (float)bits, t->count);
      values[depth++] = slot;
      continue;
    }
    const bool last = i + 1 == p->words.count;
    depth -= mllm_op_is_unary(op) ? 1 : mllm_op_is_binary(op) ? 2 : 3;
    float *to = last ? result : t->stack + depth * MLLM_EW_TILE;
    if (mllm_op_is_unary(op)) {
      p->ops->math->unary[op - MLLM_UNARY_FIRST](to, values[depth], t->count);
    } else if (mllm_op_is_binary(op)) {
      p->ops->math->binary[op - MLLM_BINARY_FIRST](to, values[depth], values[depth + 1], t->count);
    } else {
      select_values(to, values[depth], values[depth + 1], values[depth + 2], t->count);
    }
    values[depth++] = to;
  }
  return values[0];
}

static void store_result(const mllm_view *y, size_t start, const float *from, size_t n) {
  switch (y->dtype) {
    case MLLM_F32: memmove((float *)y->data + start, from, n * sizeof(float)); return;
    case MLLM_I64:
      for (size_t i = 0; i < n; i++)
        ((int64_t *)y->data)[start + i] = mllm_truncate((double)from[i]);
      return;
    case MLLM_I32:
      for (size_t i = 0; i < n; i++)
        ((int32_t *)y->data)[start + i] = (int32_t)mllm_truncate((double)from[i]);
      return;
    default:
      for (size_t i = 0; i < n; i++) ((uint8_t *)y->data)[start + i] = from[i] != 0.0F;
      return;
  }
}

/* Items are tiles. */
static void run_tiles(void *argument, size_t begin, size_t end, void *scratch) {
  const mllm_elementwise *p = argument;
  const mllm_view *y = p->out;
  const size_t total = mllm_elements(y);
  float *buffer = (float *)scratch + MLLM_EW_DEPTH * MLLM_EW_TILE;
  for (size_t i = begin; i < end; i++) {
    tile t = {.start = i * MLLM_EW_TILE, .stack = scratch};
    t.count = total - t.start < MLLM_EW_TILE ? total - t.start : MLLM_EW_TILE;
    float *result = y->dtype == MLLM_F32 ? (float *)y->data + t.start : buffer;
    const float *value = run_words(p, &t, result);
    if (value != result || y->dtype != MLLM_F32) store_result(y, t.start, value, t.count);
  }
}

static bool has_f32_op(const mllm_ops *ops, uint64_t op) {
  if (mllm_op_is_unary(op)) return ops->math->unary[op - MLLM_UNARY_FIRST] != NULL;
  return ops->math->binary[op - MLLM_BINARY_FIRST] != NULL;
}

static bool is_read(uint32_t dtype) { return dtype != MLLM_F16 && dtype != MLLM_BF16; }

mllm_status mllm_k_f32_elementwise(const mllm_call *call) {
  mllm_elementwise program;
  const mllm_status status = mllm_elementwise_read(call, has_f32_op, &program);
  if (status != MLLM_OK) return status;
  for (uint32_t i = 0; i < call->n_in; i++) {
    if (!is_read(call->in[i].dtype)) {
      return MLLM_REJECT(call, "f32_elementwise: operand %u is a half float: cast it first", i);
    }
  }
  const uint32_t y = call->out[0].dtype;
  if (y != MLLM_F32 && y != MLLM_U8 && y != MLLM_BOOL && y != MLLM_I64 && y != MLLM_I32) {
    return MLLM_REJECT(call, "f32_elementwise gives f32, bool, i64 or i32");
  }
  const size_t tiles = (mllm_elements(&call->out[0]) + MLLM_EW_TILE - 1) / MLLM_EW_TILE;
  mllm_parallel_for(call->context->threads, tiles, MLLM_EW_GRAIN / MLLM_EW_TILE, run_tiles,
                    &program);
  return MLLM_OK;
}

/* elementwise_i64.c - i64_elementwise: the same programs in exact 64-bit integers, for masks,
 * positions and shapes. Arithmetic wraps. */
#include "elementwise_program.h"

enum { TILE = 128 };

static int64_t wrapping(uint64_t value) { return (int64_t)value; }

/* Towards zero; by zero gives 0. */
static int64_t divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? wrapping(0U - (uint64_t)a) : a / b;
}

static int64_t remainder_of(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

static int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t r = remainder_of(a, b);
  return divide(a, b) - (r != 0 && (r < 0) != (b < 0));
}

static int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t r = remainder_of(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t shift(uint64_t op, int64_t a, int64_t b) {
  if (b < 0 || b > 63) return 0;
  return wrapping(op == MLLM_EW_SHL ? (uint64_t)a << b : (uint64_t)a >> b);
}

static int64_t apply_unary(uint64_t op, int64_t v) {
  switch (op) {
    case MLLM_EW_NEG: return wrapping(0U - (uint64_t)v);
    case MLLM_EW_ABS: return v < 0 ? wrapping(0U - (uint64_t)v) : v;
    case MLLM_EW_SIGN: return (v > 0) - (v < 0);
    case MLLM_EW_RELU: return v > 0 ? v : 0;
    case MLLM_EW_NOT: return v == 0;
    case MLLM_EW_BITNOT: return ~v;
    default: return wrapping((uint64_t)v * (uint64_t)v); /* MLLM_EW_SQUARE */
  }
}

static int64_t apply_binary(uint64_t op, int64_t a, int64_t b) {
  switch (op) {
    case MLLM_EW_ADD: return wrapping((uint64_t)a + (uint64_t)b);
    case MLLM_EW_SUB: return wrapping((uint64_t)a - (uint64_t)b);
    case MLLM_EW_MUL: return wrapping((uint64_t)a * (uint64_t)b);
    case MLLM_EW_DIV: return divide(a, b);
    case MLLM_EW_MIN: return a < b ? a : b;
    case MLLM_EW_MAX: return a > b ? a : b;
    case MLLM_EW_MOD: return floor_mod(a, b);
    case MLLM_EW_FMOD: return remainder_of(a, b);
    case MLLM_EW_AND: return a != 0 && b != 0;
    case MLLM_EW_OR: return a != 0 || b != 0;
    case MLLM_EW_XOR: return (a != 0) != (b != 0);
    case MLLM_EW_EQ: return a == b;
    case MLLM_EW_NE: return a != b;
    case MLLM_EW_LT: return a < b;
    case MLLM_EW_LE: return a <= b;
    case MLLM_EW_GT: return a > b;
    case MLLM_EW_GE: return a >= b;
    case MLLM_EW_FLOORDIV: return floor_divide(a, b);
    case MLLM_EW_BITAND: return a & b;
    case MLLM_EW_BITOR: return a | b;
    case MLLM_EW_BITXOR: return a ^ b;
    default: return shift(op, a, b);
  }
}

static bool has_i64_op(const mllm_ops *ops, uint64_t op) {
  (void)ops;
  if (mllm_op_is_binary(op)) return op != MLLM_EW_POW;
  return op == MLLM_EW_NEG || op == MLLM_EW_ABS || op == MLLM_EW_SIGN || op == MLLM_EW_RELU ||
         op == MLLM_EW_NOT || op == MLLM_EW_SQUARE || op == MLLM_EW_BITNOT;
}

static int64_t load_element(const mllm_view *x, size_t at) {
  switch (x->dtype) {
    case MLLM_I64: return ((const int64_t *)x->data)[at];
    case MLLM_I32: return ((const int32_t *)x->data)[at];
    case MLLM_I16: return ((const int16_t *)x->data)[at];
    case MLLM_I8: return ((const int8_t *)x->data)[at];
    case MLLM_U64: return wrapping(((const uint64_t *)x->data)[at]);
    case MLLM_U32: return ((const uint32_t *)x->data)[at];
    case MLLM_U16: return ((const uint16_t *)x->data)[at];
    default: return ((const uint8_t *)x->data)[at];
  }
}

static void store_element(const mllm_view *y, size_t at, int64_t value) {
  switch (y->dtype) {
    case MLLM_I64: ((int64_t *)y->data)[at] = value; return;
    case MLLM_I32: ((int32_t *)y->data)[at] = (int32_t)value; return;
    case MLLM_I16: ((int16_t *)y->data)[at] = (int16_t)value; return;
    case MLLM_I8: ((int8_t *)y->data)[at] = (int8_t)value; return;
    case MLLM_U64: ((uint64_t *)y->data)[at] = (uint64_t)value; return;
    case MLLM_U32: ((uint32_t *)y->data)[at] = (uint32_t)value; return;
    case MLLM_U16: ((uint16_t *)y->data)[at] = (uint16_t)value; return;
    case MLLM_U8: ((uint8_t *)y->data)[at] = (uint8_t)value; return;
    case MLLM_F32: ((float *)y->data)[at] = (float)value; return;
    default: ((uint8_t *)y->data)[at] = value != 0; return;
  }
}

static void load_operand(const mllm_elementwise *p, uint64_t index, size_t start, size_t count,
                         int64_t *to) {
  const mllm_walk *walk = &p->walks[index];
  const size_t step = mllm_walk_step(walk);
  for (size_t done = 0; done < count;) {
    size_t run = 0;
    const size_t offset = mllm_walk_at(walk, start + done, &run);
    if (walk->rank == 0) run = count;
    const size_t n = run < count - done ? run : count - done;
    for (size_t i = 0; i < n; i++) to[done + i] = load_element(&p->in[index], offset + i * step);
    done += n;
  }
}

static void run_tile(const mllm_elementwise *p, size_t start, size_t count,
                     int64_t (*stack)[TILE]) {
  size_t depth = 0;
  for (size_t w = 0; w < p->words.count; w++) {
    const int64_t word = p->words.values[w];
    const uint64_t op = mllm_word_op(word);
    if (op == MLLM_EW_LOAD) {
      load_operand(p, mllm_word_arg(word), start, count, stack[depth++]);
    } else if (mllm_op_is_constant(op)) {
      const int64_t bits = p->words.values[++w];
      const int64_t value = op == MLLM_EW_ICONST ? bits : mllm_truncate(mllm_param_double(bits));
      for (size_t i = 0; i < count; i++) stack[depth][i] = value;
      depth++;
    } else if (mllm_op_is_unary(op)) {
      int64_t *v = stack[depth - 1];
      for (size_t i = 0; i < count; i++) v[i] = apply_unary(op, v[i]);
    } else if (mllm_op_is_binary(op)) {
      depth--;
      int64_t *v = stack[depth - 1];
      for (size_t i = 0; i < count; i++) v[i] = apply_binary(op, v[i], stack[depth][i]);
    } else {
      depth -= 2;
      int64_t *v = stack[depth - 1];
      for (size_t i = 0; i < count; i++) v[i] = v[i] != 0 ? stack[depth][i] : stack[depth + 1][i];
    }
  }
  for (size_t i = 0; i < count; i++) store_element(p->out, start + i, stack[0][i]);
}

static void run_tiles(void *argument, size_t begin, size_t end, void *scratch) {
  const mllm_elementwise *p = argument;
  const size_t total = mllm_elements(p->out);
  for (size_t i = begin; i < end; i++) {
    const size_t start = i * TILE;
    run_tile(p, start, total - start < TILE ? total - start : TILE, scratch);
  }
}

static bool is_integer(uint32_t dtype) { return dtype >= MLLM_I64 && dtype <= MLLM_BOOL; }

mllm_status mllm_k_i64_elementwise(const mllm_call *call) {
  mllm_elementwise program;
  const mllm_status status = mllm_elementwise_read(call, has_i64_op, &program);
  if (status != MLLM_OK) return status;
  for (uint32_t i = 0; i < call->n_in; i++) {
    if (!is_integer(call->in[i].dtype)) {
      return MLLM_REJECT(call, "i64_elementwise: operand %u is not of integers", i);
    }
  }
  if (!is_integer(call->out[0].dtype) && call->out[0].dtype != MLLM_F32) {
    return MLLM_REJECT(call, "i64_elementwise gives integers, bool or f32");
  }
  const size_t tiles = (mllm_elements(&call->out[0]) + TILE - 1) / TILE;
  mllm_parallel_for(call->context->threads, tiles, MLLM_EW_GRAIN / TILE, run_tiles, &program);
  return MLLM_OK;
}

/* dims.c - evaluation of dim expressions. */
#include "dims.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

enum { EXPR_DEPTH = 16 };

mllm_status mllm_dims_create(mllm_dims *dims, const mllm_program *program, mllm_error *error) {
  memset(dims, 0, sizeof *dims);
  const size_t symbols = program->counts[MLLM_SECTION_SYMBOLS];
  const size_t exprs = program->counts[MLLM_SECTION_EXPRS];
  dims->program = program;
  dims->symbols = calloc(symbols + 1, sizeof *dims->symbols);
  dims->values = calloc(exprs + 1, sizeof *dims->values);
  dims->stamps = calloc(exprs + 1, sizeof *dims->stamps);
  if (dims->symbols == NULL || dims->values == NULL || dims->stamps == NULL) {
    mllm_dims_free(dims);
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for %zu dims", exprs);
  }
  mllm_dims_reset(dims);
  return MLLM_OK;
}

void mllm_dims_free(mllm_dims *dims) {
  free(dims->symbols);
  free(dims->values);
  free(dims->stamps);
  memset(dims, 0, sizeof *dims);
}

void mllm_dims_reset(mllm_dims *dims) {
  for (uint32_t i = 0; i < dims->program->counts[MLLM_SECTION_SYMBOLS]; i++) dims->symbols[i] = -1;
  dims->run++;
  if (dims->run != 0) return;
  memset(dims->stamps, 0, dims->program->counts[MLLM_SECTION_EXPRS] * sizeof *dims->stamps);
  dims->run = 1;
}

mllm_status mllm_dims_bind(mllm_dims *dims, uint32_t symbol, int64_t value, const char *what,
                           mllm_error *error) {
  const mllm_symbol_record *record = &dims->program->symbols[symbol];
  const char *name = mllm_program_string(dims->program, record->name);
  if (value < 0 || value > record->max) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                     "%s: %s = %" PRId64 " exceeds the compiled bound %" PRId64, what, name, value,
                     record->max);
  }
  if (value < (int64_t)record->min) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                     "%s: %s = %" PRId64 " is below the compiled bound %" PRIu32, what, name, value,
                     record->min);
  }
  if (dims->symbols[symbol] >= 0 && dims->symbols[symbol] != value) {
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "%s: %s = %" PRId64 ", but it is %" PRId64 " elsewhere", what, name, value,
                     dims->symbols[symbol]);
  }
  dims->symbols[symbol] = value;
  return MLLM_OK;
}

static const int64_t *words_of(const mllm_program *program, uint32_t expr) {
  return program->expr_words + program->exprs[expr].start;
}

int64_t mllm_dims_bare_symbol(const mllm_program *program, uint32_t expr) {
  const int64_t *words = words_of(program, expr);
  if (program->exprs[expr].count != 2 || words[0] != MLLM_EXPR_SYM) return -1;
  return words[1];
}

int64_t mllm_dims_constant(const mllm_program *program, uint32_t expr) {
  const int64_t *words = words_of(program, expr);
  if (program->exprs[expr].count != 2 || words[0] != MLLM_EXPR_CONST) return -1;
  return words[1];
}

/* q = floor(a / b), r = a - q * b; false where b is 0 or the quotient overflows */
static bool floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  int64_t q = a / b;
  int64_t r = a % b;
  if (r != 0 && (r < 0) != (b < 0)) {
    q -= 1;
    r += b;
  }
  *quotient = q;
  *remainder = r;
  return true;
}

static bool apply(int64_t op, int64_t a, int64_t b, int64_t *result) {
  int64_t quotient = 0;
  int64_t remainder = 0;
  switch (op) {
    case MLLM_EXPR_ADD: return !__builtin_add_overflow(a, b, result);
    case MLLM_EXPR_MUL: return !__builtin_mul_overflow(a, b, result);
    case MLLM_EXPR_FLOORDIV:
    case MLLM_EXPR_MOD:
      if (!floor_divide(a, b, &quotient, &remainder)) return false;
      *result = op == MLLM_EXPR_FLOORDIV ? quotient : remainder;
      return true;
    case MLLM_EXPR_MIN: *result = a < b ? a : b; return true;
    default: *result = a > b ? a : b; return true;
  }
}

mllm_status mllm_dims_value(mllm_dims *dims, uint32_t expr, int64_t *value, mllm_error *error) {
  if (dims->stamps[expr] == dims->run) {
    *value = dims->values[expr];
    return MLLM_OK;
  }
  const int64_t *words = words_of(dims->program, expr);
  int64_t stack[EXPR_DEPTH + 1] = {0};
  uint32_t depth = 0;
  for (uint32_t i = 0; i < dims->program->exprs[expr].count; i += 2) {
    const int64_t op = words[i];
    if (op == MLLM_EXPR_CONST) {
      stack[depth++] = words[i + 1];
      continue;
    }
    if (op == MLLM_EXPR_SYM) {
      const int64_t bound = dims->symbols[words[i + 1]];
      if (bound < 0) {
        const uint32_t name = dims->program->symbols[words[i + 1]].name;
        return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                         "no input gives the dimension %s",
                         mllm_program_string(dims->program, name));
      }
      stack[depth++] = bound;
      continue;
    }
    depth--;
    if (!apply(op, stack[depth - 1], stack[depth], &stack[depth - 1])) {
      return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                       "a dimension overflows or divides by zero (expr %u)", expr);
    }
  }
  dims->values[expr] = stack[0];
  dims->stamps[expr] = dims->run;
  *value = stack[0];
  return MLLM_OK;
}

mllm_status mllm_dims_shape(mllm_dims *dims, const mllm_tensor_record *tensor, int64_t *shape,
                            uint64_t *bytes, mllm_error *error) {
  uint64_t product = mllm_dtype_bytes(tensor->dtype);
  bool fits = true;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    const mllm_status status = mllm_dims_value(dims, tensor->dims[i], &shape[i], error);
    if (status != MLLM_OK) return status;
    if (shape[i] < 0) {
      return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                       "tensor '%s': dimension %u would be %" PRId64,
                       mllm_program_string(dims->program, tensor->name), i, shape[i]);
    }
    fits = fits && !__builtin_mul_overflow(product, (uint64_t)shape[i], &product);
  }
  if (!fits || product > SIZE_MAX / 2) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND, "tensor '%s' is too large",
                     mllm_program_string(dims->program, tensor->name));
  }
  *bytes = product;
  return MLLM_OK;
}

/* One operand of an infix text: where it starts in the buffer, and how tightly it binds. */
typedef struct operand {
  char text[96];
  int level; /* 0 sum, 1 product, 2 atom */
} operand;

static void join(operand *left, const operand *right, int64_t op) {
  static const char *const signs[] = {" + ", "*", "//", "%"};
  operand joined;
  if (op >= MLLM_EXPR_MIN) {
    (void)snprintf(joined.text, sizeof joined.text, "%s(%.40s, %.40s)",
                   op == MLLM_EXPR_MIN ? "min" : "max", left->text, right->text);
    joined.level = 2;
  } else {
    const int level = op == MLLM_EXPR_ADD ? 0 : 1;
    const bool wrap_left = left->level < level;
    const bool wrap_right = right->level < level || (level == 1 && right->level == 1);
    (void)snprintf(joined.text, sizeof joined.text, "%s%.40s%s%s%s%.40s%s", wrap_left ? "(" : "",
                   left->text, wrap_left ? ")" : "", signs[op - MLLM_EXPR_ADD],
                   wrap_right ? "(" : "", right->text, wrap_right ? ")" : "");
    joined.level = level;
  }
  *left = joined;
}

mllm_status mllm_dims_text(const mllm_program *program, uint32_t expr, char *text, size_t bytes) {
  if (bytes == 0 || expr >= program->counts[MLLM_SECTION_EXPRS]) return MLLM_INVALID_ARGUMENT;
  const int64_t *words = words_of(program, expr);
  operand stack[EXPR_DEPTH];
  uint32_t depth = 0;
  for (uint32_t i = 0; i < program->exprs[expr].count; i += 2) {
    operand *top = &stack[depth];
    if (words[i] == MLLM_EXPR_CONST) {
      (void)snprintf(top->text, sizeof top->text, "%" PRId64, words[i + 1]);
    } else if (words[i] == MLLM_EXPR_SYM) {
      const uint32_t name = program->symbols[words[i + 1]].name;
      (void)snprintf(top->text, sizeof top->text, "%s", mllm_program_string(program, name));
    } else {
      depth--;
      join(&stack[depth - 1], &stack[depth], words[i]);
      continue;
    }
    top->level = 2;
    depth++;
  }
  (void)snprintf(text, bytes, "%s", stack[0].text);
  return MLLM_OK;
}

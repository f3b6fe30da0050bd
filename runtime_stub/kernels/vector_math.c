/* vector_math.c - elementwise loops of floats, compiled once per instruction set.
 *
 * The functions of mathf.h are free of branches, so that the compiler makes vector code of these
 * loops; those that call libm stay scalar. Operands may be the same array: each element depends on
 * its own place only. */
#include "mathf.h"
#include "ops.h"
#include "simd.h"

#define UNARY(name, expression)                           \
  static void name(float *y, const float *x, size_t n) {  \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) { \
      const float v = x[i];                               \
      y[i] = (expression);                                \
    }                                                     \
  }

#define BINARY(name, expression)                                         \
  static void name(float *y, const float *a, const float *b, size_t n) { \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) {                \
      const float u = a[i];                                              \
      const float v = b[i];                                              \
      y[i] = (expression);                                               \
    }                                                                    \
  }

UNARY(negate, -v)
UNARY(absolute, fabsf(v))
UNARY(sign, v > 0.0F ? 1.0F : (v < 0.0F ? -1.0F : (v == v ? 0.0F : v)))
UNARY(ceiling, ceilf(v))
UNARY(floor_of, floorf(v))
UNARY(round_even, rintf(v))
UNARY(exponential, exp_f32(v))
UNARY(logarithm, log_f32(v))
UNARY(square_root, sqrtf(v))
UNARY(inverse_root, 1.0F / sqrtf(v))
UNARY(reciprocal, 1.0F / v)
UNARY(sine, sinf(v))
UNARY(cosine, cosf(v))
UNARY(tangent, tanf(v))
UNARY(hyperbolic_tangent, tanh_f32(v))
UNARY(error_function, erf_f32(v))
UNARY(sigmoid, sigmoid_f32(v))
UNARY(relu, v < 0.0F ? 0.0F : v)
UNARY(gelu, gelu_f32(v))
UNARY(gelu_tanh, gelu_tanh_f32(v))
UNARY(silu, v *sigmoid_f32(v))
UNARY(softplus, softplus_f32(v))
UNARY(hard_sigmoid, hard_sigmoid_f32(v))
UNARY(hard_swish, v *hard_sigmoid_f32(v))
UNARY(logical_not, v == 0.0F ? 1.0F : 0.0F)
UNARY(is_nan, v != v ? 1.0F : 0.0F)
UNARY(is_inf, fabsf(v) == INFINITY ? 1.0F : 0.0F)
UNARY(square, v *v)
UNARY(arc_sine, asinf(v))
UNARY(arc_cosine, acosf(v))
UNARY(arc_tangent, atanf(v))
UNARY(hyperbolic_sine, sinhf(v))
UNARY(hyperbolic_cosine, coshf(v))
UNARY(area_sine, asinhf(v))
UNARY(area_cosine, acoshf(v))
UNARY(area_tangent, atanhf(v))
UNARY(elu, v > 0.0F ? v : expm1f(v))
UNARY(selu, 1.0507009873554805F * (v > 0.0F ? v : 1.6732632423543772F * expm1f(v)))
UNARY(softsign, v / (1.0F + fabsf(v)))
UNARY(mish, v *tanh_f32(softplus_f32(v)))

/* floor(u / v) with Python's meaning for the remainder */
static inline float floor_mod(float u, float v) {
  const float r = fmodf(u, v);
  return r != 0.0F && (r < 0.0F) != (v < 0.0F) ? r + v : r;
}

BINARY(add, u + v)
BINARY(subtract, u - v)
BINARY(multiply, u *v)
BINARY(divide, u / v)
BINARY(minimum, (u < v || u != u) ? u : v)
BINARY(maximum, (u > v || u != u) ? u : v)
BINARY(modulo, floor_mod(u, v))
BINARY(remainder_of, fmodf(u, v))
BINARY(logical_and, (u != 0.0F && v != 0.0F) ? 1.0F : 0.0F)
BINARY(logical_or, (u != 0.0F || v != 0.0F) ? 1.0F : 0.0F)
BINARY(logical_xor, ((u != 0.0F) != (v != 0.0F)) ? 1.0F : 0.0F)
BINARY(equal, u == v ? 1.0F : 0.0F)
BINARY(not_equal, u != v ? 1.0F : 0.0F)
BINARY(less, u < v ? 1.0F : 0.0F)
BINARY(less_equal, u <= v ? 1.0F : 0.0F)
BINARY(greater, u > v ? 1.0F : 0.0F)
BINARY(greater_equal, u >= v ? 1.0F : 0.0F)
BINARY(floor_divide, floorf(u / v))
BINARY(power_of_each, powf(u, v))

/* Squares are what models raise to; the rest goes through libm. */
static void power(float *y, const float *a, const float *b, size_t n) {
  size_t twos = 0;
  while (twos < n && b[twos] == 2.0F) twos++;
  if (twos == n) {
    square(y, a, n);
  } else {
    power_of_each(y, a, b, n);
  }
}

#define AT_UNARY(op)  [op - MLLM_UNARY_FIRST]
#define AT_BINARY(op) [op - MLLM_BINARY_FIRST]

const mllm_math_ops MLLM_VARIANT_NAME(math_ops) = {
    .unary =
        {
            AT_UNARY(MLLM_EW_NEG) = negate,
            AT_UNARY(MLLM_EW_ABS) = absolute,
            AT_UNARY(MLLM_EW_SIGN) = sign,
            AT_UNARY(MLLM_EW_CEIL) = ceiling,
            AT_UNARY(MLLM_EW_FLOOR) = floor_of,
            AT_UNARY(MLLM_EW_ROUND) = round_even,
            AT_UNARY(MLLM_EW_EXP) = exponential,
            AT_UNARY(MLLM_EW_LOG) = logarithm,
            AT_UNARY(MLLM_EW_SQRT) = square_root,
            AT_UNARY(MLLM_EW_RSQRT) = inverse_root,
            AT_UNARY(MLLM_EW_RECIPROCAL) = reciprocal,
            AT_UNARY(MLLM_EW_SIN) = sine,
            AT_UNARY(MLLM_EW_COS) = cosine,
            AT_UNARY(MLLM_EW_TAN) = tangent,
            AT_UNARY(MLLM_EW_TANH) = hyperbolic_tangent,
            AT_UNARY(MLLM_EW_ERF) = error_function,
            AT_UNARY(MLLM_EW_SIGMOID) = sigmoid,
            AT_UNARY(MLLM_EW_RELU) = relu,
            AT_UNARY(MLLM_EW_GELU) = gelu,
            AT_UNARY(MLLM_EW_GELU_TANH) = gelu_tanh,
            AT_UNARY(MLLM_EW_SILU) = silu,
            AT_UNARY(MLLM_EW_SOFTPLUS) = softplus,
            AT_UNARY(MLLM_EW_HARD_SIGMOID) = hard_sigmoid,
            AT_UNARY(MLLM_EW_HARD_SWISH) = hard_swish,
            AT_UNARY(MLLM_EW_NOT) = logical_not,
            AT_UNARY(MLLM_EW_ISNAN) = is_nan,
            AT_UNARY(MLLM_EW_ISINF) = is_inf,
            AT_UNARY(MLLM_EW_SQUARE) = square,
            AT_UNARY(MLLM_EW_ASIN) = arc_sine,
            AT_UNARY(MLLM_EW_ACOS) = arc_cosine,
            AT_UNARY(MLLM_EW_ATAN) = arc_tangent,
            AT_UNARY(MLLM_EW_SINH) = hyperbolic_sine,
            AT_UNARY(MLLM_EW_COSH) = hyperbolic_cosine,
            AT_UNARY(MLLM_EW_ASINH) = area_sine,
            AT_UNARY(MLLM_EW_ACOSH) = area_cosine,
            AT_UNARY(MLLM_EW_ATANH) = area_tangent,
            AT_UNARY(MLLM_EW_ELU) = elu,
            AT_UNARY(MLLM_EW_SELU) = selu,
            AT_UNARY(MLLM_EW_SOFTSIGN) = softsign,
            AT_UNARY(MLLM_EW_MISH) = mish,
        },
    .binary =
        {
            AT_BINARY(MLLM_EW_ADD) = add,
            AT_BINARY(MLLM_EW_SUB) = subtract,
            AT_BINARY(MLLM_EW_MUL) = multiply,
            AT_BINARY(MLLM_EW_DIV) = divide,
            AT_BINARY(MLLM_EW_POW) = power,
            AT_BINARY(MLLM_EW_MIN) = minimum,
            AT_BINARY(MLLM_EW_MAX) = maximum,
            AT_BINARY(MLLM_EW_MOD) = modulo,
            AT_BINARY(MLLM_EW_FMOD) = remainder_of,
            AT_BINARY(MLLM_EW_AND) = logical_and,
            AT_BINARY(MLLM_EW_OR) = logical_or,
            AT_BINARY(MLLM_EW_XOR) = logical_xor,
            AT_BINARY(MLLM_EW_EQ) = equal,
            AT_BINARY(MLLM_EW_NE) = not_equal,
            AT_BINARY(MLLM_EW_LT) = less,
            AT_BINARY(MLLM_EW_LE) = less_equal,
            AT_BINARY(MLLM_EW_GT) = greater,
            AT_BINARY(MLLM_EW_GE) = greater_equal,
            AT_BINARY(MLLM_EW_FLOORDIV) = floor_divide,
        },
};

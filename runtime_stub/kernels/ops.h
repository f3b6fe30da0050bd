/* ops.h - the inner loops that exist once per instruction set, and the choice among them. */
#ifndef MLLM_OPS_H
#define MLLM_OPS_H

#include <stdbool.h>

#include "../kv/row_codes.h"
#include "mllm_kernels.h"

enum {
  MLLM_PANEL = 16,     /* columns of a weight panel */
  MLLM_TILE_ROWS = 12, /* no variant's tile has more rows */
  MLLM_QUAD = 4,       /* codes of a row that stand side by side */
  MLLM_TILE_DEPTH = 4096, /* codes of a tile: 255 * 255 of each fit 32 bits */
  MLLM_A_STRIDE = 64,  /* floats between rows of a tile's a that is not packed */
  MLLM_UNARY_FIRST = MLLM_EW_NEG,
  MLLM_UNARY_COUNT = 41,
  MLLM_BINARY_FIRST = MLLM_EW_ADD,
  MLLM_BINARY_COUNT = 24
};

/* What a tile starts from. */
typedef enum mllm_tile_start {
  MLLM_START_ZERO = 0,
  MLLM_START_BIAS = 1, /* bias[columns] in every row */
  MLLM_START_C = 2     /* c itself: the product is added */
} mllm_tile_start;

/* One tile of c = a b. b is panels of 16 columns: element (k, j) of panel p stands at
 * b[p * panel_stride + k * row_stride + j]. */
typedef struct mllm_tile {
  size_t rows;    /* 1..tile_rows */
  size_t columns; /* 1..tile_columns; b has all 16 columns of each panel that is begun */
  size_t depth;   /* k */
  const float *a; /* [depth, tile_rows]: packed with pack_rows; or [rows, MLLM_A_STRIDE] */
  bool a_is_rows; /* a is of the second kind */
  const float *b;
  size_t row_stride;   /* of b, floats */
  size_t panel_stride; /* of b, floats */
  float *c;            /* [rows, columns] */
  size_t c_stride;     /* floats between rows of c */
  const float *bias;   /* [columns], with MLLM_START_BIAS */
  mllm_tile_start start;
} mllm_tile;

/* y[rows, columns] = x w + bias for few rows; w is [panels, depth, 16]. */
typedef struct mllm_gemv {
  size_t rows; /* 1..MLLM_GEMV_ROWS; alone: any number */
  bool alone;  /* each row is summed as if it were the only one, bit for bit */
  size_t depth;
  size_t columns; /* 1..16 of the last panel are used */
  const float *x; /* [rows, depth] */
  size_t x_stride;
  const float *w;    /* first panel */
  const float *bias; /* [columns] or NULL */
  float *y;          /* [rows, columns] */
  size_t y_stride;
} mllm_gemv;

enum { MLLM_GEMV_ROWS = 4 };

/* y[n] = f(x[n]); y may be x */
typedef void (*mllm_unary_fn)(float *y, const float *x, size_t n);
/* y[n] = f(a[n], b[n]); y may be a or b */
typedef void (*mllm_binary_fn)(float *y, const float *a, const float *b, size_t n);

/* gemm.c */
typedef struct mllm_gemm_ops {
  size_t tile_rows;
  size_t tile_columns;
  void (*tile)(const mllm_tile *tile);
  void (*gemv)(const mllm_gemv *gemv);
  /* packed[depth, tile_rows] from x[rows, depth], times scale; missing rows are zeros */
  void (*pack_rows)(float *packed, const float *x, size_t x_stride, size_t rows, size_t depth,
                    float scale);
  /* packed[ceil(rows / 16), depth, 16] from x[rows, depth]: panel p holds rows 16p.. as columns */
  void (*pack_panels)(float *packed, const float *x, size_t x_stride, size_t rows, size_t depth);
} mllm_gemm_ops;

/* vector_math.c */
typedef struct mllm_math_ops {
  mllm_unary_fn unary[MLLM_UNARY_COUNT];    /* by op - MLLM_UNARY_FIRST; NULL: not in f32 */
  mllm_binary_fn binary[MLLM_BINARY_COUNT]; /* by op - MLLM_BINARY_FIRST; likewise */
} mllm_math_ops;

/* rows.c */
typedef struct mllm_row_ops {
  float (*dot)(const float *a, const float *b, size_t n);
  float (*sum)(const float *x, size_t n);
  float (*max)(const float *x, size_t n); /* -inf of nothing */
  /* x = exp(x - shift); gives the sum */
  float (*exp_sum)(float *x, float shift, size_t n);
  void (*scale)(float *y, float factor, size_t n);                      /* y *= factor */
  void (*add_scaled)(float *y, const float *x, float factor, size_t n); /* y += factor x */
  /* one row each; weight and bias may be NULL */
  void (*rms_norm)(float *y, const float *x, const float *weight, float epsilon, size_t n);
  void (*layer_norm)(float *y, const float *x, const float *weight, const float *bias,
                     float epsilon, size_t n);
} mllm_row_ops;

enum { MLLM_ROW_VECTORS = 3 /* that share the reading of rows */ };

/* Some vectors and the rows x[count, n], which are floats, half floats or codes. */
typedef struct mllm_row_product {
  const mllm_kv_stored *x;
  size_t count;
  size_t n;
  size_t vectors;
  const float *a; /* [vectors, n] of dots, [vectors, count] of add_rows */
  size_t a_stride;
  float *out; /* [vectors, count] of dots, [vectors, n] of add_rows */
  size_t out_stride;
} mllm_row_product;

/* stored_rows.c: the bits of a vector's results depend neither on the other vectors nor on how the
 * numbers of the rows are stored. */
typedef struct mllm_stored_ops {
  void (*dots)(const mllm_row_product *product);     /* out = a x^T */
  void (*add_rows)(const mllm_row_product *product); /* out += a x */
} mllm_stored_ops;

/* A weight [n, depth] as codes in panels of 16 rows, four of a row side by side: byte (p, g, j, i)
 * has code 4 (8 / bits g + s) + i of row 16p + j in its bits from s * bits on; those behind the last
 * are 0. A code means (code - zero) * scale, with one of each for all, or one for each row and block
 * of codes, in panels [panels, blocks, 16]. */
typedef struct mllm_codes {
  const unsigned char *data; /* [panels, ceil(depth * bits / 32), 16, 4] */
  size_t depth;
  size_t block;
  size_t blocks;
  uint32_t bits; /* 8, 4 or 2 */
  bool is_signed;
  const void *scale; /* float, or half floats */
  bool scale_is_half;
  bool one_scale;
  const unsigned char *zero; /* codes [panels, ceil(blocks * zero_bits / 8), 16], or NULL */
  uint32_t zero_bits;
  bool zero_is_signed;
  bool one_zero;
} mllm_codes;

/* The end of the codes from k on that are summed as integers: those of one block. */
static inline size_t mllm_code_span(const mllm_codes *codes, size_t k, size_t limit) {
  const size_t block_end = (k / codes->block + 1) * codes->block;
  return block_end < limit ? block_end : limit;
}

/* A product of integers: sums[rows, 16] = x[rows, depth] w[depth, 16], which fit 32 bits. */
typedef struct mllm_code_product {
  size_t rows; /* 1..product_rows */
  size_t depth;
  const int32_t *x;
  size_t x_stride;
  const unsigned char *w; /* bytes, signed or not */
  size_t w_stride;
  bool w_is_signed;
  int32_t *sums;
} mllm_code_product;

/* How reals become codes: clamp(round(x / scale) + zero), from low to high. */
typedef struct mllm_code_rule {
  float scale;
  int32_t zero;
  int32_t low;
  int32_t high;
} mllm_code_rule;

/* codes.c */
typedef struct mllm_code_ops {
  size_t product_rows;
  void (*product)(const mllm_code_product *product);
  /* w[depth, 16]: what the codes k.. of a panel mean */
  void (*reals)(float *w, const mllm_codes *codes, size_t panel, size_t k, size_t depth);
  /* codes of one byte; 0 of NaN */
  void (*bytes)(uint8_t *codes, const float *x, size_t n, mllm_code_rule rule);
  /* The least and the largest of x and 0; NaN where there is one */
  void (*bounds)(const float *x, size_t n, float *least, float *most);
} mllm_code_ops;

/* Rows of x times codes k.. of one panel; what is begun in one tile goes on in the next. x is bytes
 * with sign (of a u8, the code less 128), one span of codes behind another, each from and to a
 * multiple of four, zeros where the codes are another span's. */
typedef struct mllm_code_tile {
  const mllm_codes *codes;
  size_t panel;
  size_t rows; /* 1..tile rows, less one where x has zero points */
  size_t k;
  size_t depth; /* at most MLLM_TILE_DEPTH */
  const int8_t *x; /* [rows, x_stride]; where x has zero points, a row of ones behind the last */
  size_t x_stride;
  const int32_t *x_sums;  /* [rows, x_spans] of each span's bytes */
  const int32_t *x_zeros; /* [rows, x_spans] zero points of each span, less 128 of a u8; or NULL */
  size_t x_spans;
  double *sums; /* [rows, 16]: of the block that is not done; whole numbers */
  double *y;    /* [rows, 16]: of the blocks that are done, scaled */
  const float *x_scale; /* of row r and block g at r * x_scale_row + g * x_scale_block; or NULL */
  size_t x_scale_row;
  size_t x_scale_block;
} mllm_code_tile;

/* code_tiles.c */
typedef struct mllm_tile_ops {
  size_t rows;
  int32_t (*sum)(const int8_t *x, size_t n); /* fits where n is at most MLLM_TILE_DEPTH */
  void (*tile)(const mllm_code_tile *tile);
} mllm_tile_ops;

typedef struct mllm_ops {
  const char *name;
  const mllm_gemm_ops *gemm;
  const mllm_math_ops *math;
  const mllm_row_ops *rows;
  const mllm_stored_ops *stored;
  const mllm_code_ops *codes;
  const mllm_tile_ops *tiles;
} mllm_ops;

/* cpu: "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", or NULL: the environment's MLLM_CPU,
 * else the best. */
mllm_status mllm_choose_ops(const char *cpu, const mllm_ops **ops, mllm_error *error);

#endif /* MLLM_OPS_H */

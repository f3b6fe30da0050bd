/* mllm_program.h - the format of program.bin (ABI 1), little endian, and the numbers in its params.
 *
 * Header, then twelve sections, each aligned to 8 bytes. String references are byte offsets of
 * NUL-terminated UTF-8 in the section strings. Tensors, exprs, kernels and so on are referred to by
 * index. MLLM_NONE stands for an operand that is absent.
 */
#ifndef MLLM_PROGRAM_H
#define MLLM_PROGRAM_H

#include <stdint.h>

#define MLLM_PROGRAM_MAGIC "MLLMPRG\x01"
#define MLLM_NONE          0xFFFFFFFFu
#define MLLM_NO_SLOT       0xFFFFFFFFFFFFFFFFull

typedef enum mllm_section {
  MLLM_SECTION_STRINGS = 0,     /* bytes */
  MLLM_SECTION_SYMBOLS = 1,     /* mllm_symbol_record */
  MLLM_SECTION_EXPR_WORDS = 2,  /* i64 pairs (op, value) */
  MLLM_SECTION_EXPRS = 3,       /* mllm_expr_record */
  MLLM_SECTION_TENSORS = 4,     /* mllm_tensor_record */
  MLLM_SECTION_ARG_IDS = 5,     /* u32 tensor ids */
  MLLM_SECTION_PARAMS = 6,      /* i64 */
  MLLM_SECTION_PARAM_KINDS = 7, /* u8 mllm_param_kind, one per param */
  MLLM_SECTION_KERNELS = 8,     /* mllm_kernel_record */
  MLLM_SECTION_STAGES = 9,      /* mllm_stage_record */
  MLLM_SECTION_ENTRIES = 10,    /* mllm_entry_record */
  MLLM_SECTION_CACHES = 11,     /* mllm_cache_record */
  MLLM_SECTION_COUNT = 12
} mllm_section;

typedef struct mllm_section_record {
  uint32_t offset; /* bytes from the start of the file */
  uint32_t count;  /* elements */
} mllm_section_record;

/* The header has no padding: magic (8 bytes), u32 abi, twelve section records, u64 arena_bytes,
 * u64 weight_bytes. The records of the sections lie as C lays them out; none of them needs padding.
 */
enum {
  MLLM_HEADER_ABI = 8,
  MLLM_HEADER_SECTIONS = 12,
  MLLM_HEADER_ARENA_BYTES = 108,
  MLLM_HEADER_WEIGHT_BYTES = 116,
  MLLM_HEADER_BYTES = 124
};

typedef struct mllm_symbol_record {
  uint32_t name;
  uint32_t min;
  int64_t max;
} mllm_symbol_record;

typedef struct mllm_expr_record {
  uint32_t start; /* first word in expr_words */
  uint32_t count; /* words, two per operation */
} mllm_expr_record;

typedef enum mllm_expr_op {
  MLLM_EXPR_CONST = 0, /* value */
  MLLM_EXPR_SYM = 1,   /* symbol index */
  MLLM_EXPR_ADD = 2,
  MLLM_EXPR_MUL = 3,
  MLLM_EXPR_FLOORDIV = 4,
  MLLM_EXPR_MOD = 5, /* sign of the divisor */
  MLLM_EXPR_MIN = 6,
  MLLM_EXPR_MAX = 7
} mllm_expr_op;

typedef enum mllm_storage {
  MLLM_STORAGE_ARENA = 0,
  MLLM_STORAGE_WEIGHT = 1,
  MLLM_STORAGE_IO = 2 /* bound by the caller; an offset is its default place in the arena */
} mllm_storage;

typedef struct mllm_tensor_record {
  uint32_t name;
  uint32_t dtype; /* mllm_dtype */
  uint32_t rank;
  uint32_t storage;
  uint64_t offset; /* multiple of the element size; MLLM_NO_SLOT: io without a default place */
  uint64_t max_bytes;
  uint32_t dims[8]; /* exprs; unused ones are 0 */
} mllm_tensor_record;

typedef enum mllm_param_kind {
  MLLM_PARAM_INT = 0,
  MLLM_PARAM_FLOAT = 1, /* bits of a double */
  MLLM_PARAM_EXPR = 2,  /* index of an expr; kernels see its value */
  MLLM_PARAM_STRING = 3 /* string */
} mllm_param_kind;

typedef struct mllm_kernel_record {
  uint32_t name; /* "f32_linear" */
} mllm_kernel_record;

typedef struct mllm_stage_record {
  uint32_t kernel;
  uint32_t first_arg; /* inputs, then outputs */
  uint32_t n_in;
  uint32_t n_out;
  uint32_t first_param;
  uint32_t n_params;
  uint32_t location; /* string: the ONNX node */
  uint32_t flags;    /* mllm_stage_flag */
} mllm_stage_record;

typedef enum mllm_stage_flag {
  MLLM_STAGE_FALLBACK = 1 /* the device of the graph refuses what the stage does */
} mllm_stage_flag;

/* A stage of the kernel device_call calls a function of a device. Its two params are strings, the
 * names of the device and of the function; none of its operands is absent. */

typedef struct mllm_entry_record {
  uint32_t name;
  uint32_t role;
  uint32_t first_stage;
  uint32_t n_stages;
  uint32_t first_input; /* in arg_ids */
  uint32_t n_inputs;
  uint32_t first_output;
  uint32_t n_outputs;
  int32_t cache;    /* -1: none */
  uint32_t buckets; /* place of its table in params, counted from 1; 0: it runs its own stages */
} mllm_entry_record;

/* An entry with buckets has no stages: the entries behind it serve it, each for inputs up to certain
 * sizes. Its table, all integers, at params[buckets - 1]:
 *
 *   n_symbols, n_variants
 *   n_symbols times: symbol, 1 where its padding stands before the real elements (else 0)
 *   n_variants times: the size of each symbol
 *
 * Variant v is the entry that follows as number 1 + v. Its shapes are constants; it takes the inputs
 * of the entry in their order, padded with zeros, then i64 [1] inputs named "length." and a symbol,
 * which say how many elements are real; it gives the outputs of the entry in their order. None of
 * the entry's tensors has a default place, and none of the entries has a cache. */

typedef struct mllm_cache_record {
  uint32_t name;
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t page_tokens;
  uint32_t max_tokens;
  uint32_t formats;     /* place of its table in params, counted from 1; 0: all layers are f32 */
  uint32_t past_symbol; /* its value is the cache's length; MLLM_NONE: no dim depends on it */
} mllm_cache_record;

/* The table of a cache, all integers, at params[formats - 1]:
 *
 *   recent: tokens before a page, a multiple of page_tokens, that do not fall to 4 bits while it is
 *   filled; 0: none ever falls
 *   layers times: mllm_kv_format, tensor
 *
 * The tensor is a weight f16 [kv_heads, head_dim] that keys are divided by before they become codes;
 * -1: none. */

/* How a layer stores keys and values. Codes of 8 bits have a scale for each token and head. */
typedef enum mllm_kv_format {
  MLLM_KV_F32 = 0,
  MLLM_KV_F16 = 1,
  MLLM_KV_8 = 2,
  MLLM_KV_4 = 3 /* 8 bits, and 4 in pages that lie far enough back */
} mllm_kv_format;

/* ---- Numbers in params -------------------------------------------------------------------------
 */

/* f32_linear: activation */
typedef enum mllm_activation {
  MLLM_ACTIVATION_NONE = 0,
  MLLM_ACTIVATION_RELU = 1,
  MLLM_ACTIVATION_GELU = 2,
  MLLM_ACTIVATION_GELU_TANH = 3,
  MLLM_ACTIVATION_SILU = 4
} mllm_activation;

/* quantized_linear, f32_dequantized_linear, f32_dequantized_embedding, unpack: code and zero_code.
 * Codes of less than a byte share one, low bits first. */
typedef enum mllm_code_format {
  MLLM_CODES_I8 = 0,
  MLLM_CODES_U8 = 1,
  MLLM_CODES_I4 = 2,
  MLLM_CODES_U4 = 3,
  MLLM_CODES_I2 = 4,
  MLLM_CODES_U2 = 5
} mllm_code_format;

/* f32_reduce: kind */
typedef enum mllm_reduce_kind {
  MLLM_REDUCE_SUM = 0,
  MLLM_REDUCE_MEAN = 1,
  MLLM_REDUCE_MAX = 2,
  MLLM_REDUCE_MIN = 3,
  MLLM_REDUCE_PROD = 4,
  MLLM_REDUCE_L1 = 5,
  MLLM_REDUCE_L2 = 6,
  MLLM_REDUCE_SUM_SQUARE = 7,
  MLLM_REDUCE_LOG_SUM = 8,
  MLLM_REDUCE_LOG_SUM_EXP = 9
} mllm_reduce_kind;

/* top_k: part */
typedef enum mllm_top_k_part { MLLM_TOP_K_VALUES = 0, MLLM_TOP_K_INDICES = 1 } mllm_top_k_part;

/* f32_pool: kind */
typedef enum mllm_pool_kind { MLLM_POOL_MAX = 0, MLLM_POOL_AVERAGE = 1 } mllm_pool_kind;

/* f32_resize: mode and coordinates */
typedef enum mllm_resize_mode {
  MLLM_RESIZE_NEAREST = 0,
  MLLM_RESIZE_LINEAR = 1,
  MLLM_RESIZE_CUBIC = 2
} mllm_resize_mode;
typedef enum mllm_resize_coordinates {
  MLLM_RESIZE_HALF_PIXEL = 0,
  MLLM_RESIZE_ALIGN_CORNERS = 1,
  MLLM_RESIZE_ASYMMETRIC = 2,
  MLLM_RESIZE_PYTORCH_HALF_PIXEL = 3
} mllm_resize_coordinates;

/* f32_elementwise and i64_elementwise: postfix words (op << 32 | arg). Operands are pushed left to
 * right: SUB is (second from top) - top; SELECT takes condition, a, b. At most 16 values deep.
 * Truth is "not zero"; comparisons and logic give 0 or 1. In i64 programs only the marked ones. */
typedef enum mllm_elementwise_op {
  MLLM_EW_LOAD = 0,   /* i64 too; arg = input 0..7 */
  MLLM_EW_CONST = 1,  /* i64 too; the next word is the bits of a double */
  MLLM_EW_ICONST = 2, /* i64 too; the next word is the integer itself */
  MLLM_EW_SELECT = 3, /* i64 too */
  /* unary */
  MLLM_EW_NEG = 16,  /* i64 too */
  MLLM_EW_ABS = 17,  /* i64 too */
  MLLM_EW_SIGN = 18, /* i64 too */
  MLLM_EW_CEIL = 19,
  MLLM_EW_FLOOR = 20,
  MLLM_EW_ROUND = 21, /* half to even */
  MLLM_EW_EXP = 22,
  MLLM_EW_LOG = 23,
  MLLM_EW_SQRT = 24,
  MLLM_EW_RSQRT = 25,
  MLLM_EW_RECIPROCAL = 26,
  MLLM_EW_SIN = 27,
  MLLM_EW_COS = 28,
  MLLM_EW_TAN = 29,
  MLLM_EW_TANH = 30,
  MLLM_EW_ERF = 31,
  MLLM_EW_SIGMOID = 32,
  MLLM_EW_RELU = 33, /* i64 too */
  MLLM_EW_GELU = 34,
  MLLM_EW_GELU_TANH = 35,
  MLLM_EW_SILU = 36,
  MLLM_EW_SOFTPLUS = 37,
  MLLM_EW_HARD_SIGMOID = 38, /* max(0, min(1, x / 6 + 0.5)) */
  MLLM_EW_HARD_SWISH = 39,   /* x * hard_sigmoid(x) */
  MLLM_EW_NOT = 40,          /* i64 too */
  MLLM_EW_ISNAN = 41,
  MLLM_EW_ISINF = 42,
  MLLM_EW_SQUARE = 43, /* i64 too */
  MLLM_EW_ASIN = 44,
  MLLM_EW_ACOS = 45,
  MLLM_EW_ATAN = 46,
  MLLM_EW_SINH = 47,
  MLLM_EW_COSH = 48,
  MLLM_EW_ASINH = 49,
  MLLM_EW_ACOSH = 50,
  MLLM_EW_ATANH = 51,
  MLLM_EW_ELU = 52, /* alpha = 1 */
  MLLM_EW_SELU = 53,
  MLLM_EW_SOFTSIGN = 54,
  MLLM_EW_MISH = 55,
  MLLM_EW_BITNOT = 56, /* i64 only */
  /* binary */
  MLLM_EW_ADD = 96, /* i64 too, as all of these but POW */
  MLLM_EW_SUB = 97,
  MLLM_EW_MUL = 98,
  MLLM_EW_DIV = 99, /* i64: towards zero; by zero gives 0 */
  MLLM_EW_POW = 100,
  MLLM_EW_MIN = 101,
  MLLM_EW_MAX = 102,
  MLLM_EW_MOD = 103,  /* sign of the divisor */
  MLLM_EW_FMOD = 104, /* sign of the dividend */
  MLLM_EW_AND = 105,
  MLLM_EW_OR = 106,
  MLLM_EW_XOR = 107,
  MLLM_EW_EQ = 108,
  MLLM_EW_NE = 109,
  MLLM_EW_LT = 110,
  MLLM_EW_LE = 111,
  MLLM_EW_GT = 112,
  MLLM_EW_GE = 113,
  MLLM_EW_FLOORDIV = 114,
  MLLM_EW_BITAND = 115, /* i64 only, as the four that follow */
  MLLM_EW_BITOR = 116,
  MLLM_EW_BITXOR = 117,
  MLLM_EW_SHL = 118,
  MLLM_EW_SHR = 119
} mllm_elementwise_op;

#endif /* MLLM_PROGRAM_H */

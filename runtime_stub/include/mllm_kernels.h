/* mllm_kernels.h - how kernels are called: by the executor's stage table, and by generated C.
 *
 * A kernel checks its operands' ranks, dims, dtypes and params itself and touches no memory outside
 * of them. The operands' order and the params' order are those of docs on the cpu dialect.
 */
#ifndef MLLM_KERNELS_H
#define MLLM_KERNELS_H

#include "mllm.h"
#include "mllm_program.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* A dense row-major operand; data NULL with rank 0 and dtype 0: an absent optional operand. */
typedef struct mllm_view {
  void *data;
  uint32_t dtype;
  uint32_t rank;
  int64_t dims[MLLM_MAX_RANK];
} mllm_view;

/* Threads, scratch, kernel variant and KV caches: what kernels need beside their operands. */
typedef struct mllm_context mllm_context;

/* A function of a device, ready to run. */
typedef struct mllm_device_function mllm_device_function;
typedef struct mllm_arena mllm_arena;

typedef struct mllm_call {
  mllm_context *context;
  const mllm_view *in;
  const mllm_view *out;
  uint32_t n_in;
  uint32_t n_out;
  const int64_t *params; /* exprs already evaluated; floats as bits of a double */
  const uint8_t *kinds;  /* mllm_param_kind of each; NULL: all are integers or bits */
  uint32_t n_params;
  int32_t cache;     /* index among the context's caches; -1: none */
  mllm_error *error; /* may be NULL */
  const mllm_device_function *function; /* what device_call calls; else NULL */
  mllm_tensor *tensors;                 /* [n_in + n_out] room for device_call; else NULL */
  const mllm_arena *arena;              /* of which device_call passes tensors; else NULL */
} mllm_call;

typedef mllm_status (*mllm_kernel)(const mllm_call *call);

/* The kernel of a name ("f32_linear"), or NULL. */
mllm_kernel mllm_find_kernel(const char *name);
/* Names by index, NULL after the last. */
const char *mllm_kernel_name(uint32_t index);

/* For generated C: a context without a model. caches may be NULL where n_caches is 0. */
typedef struct mllm_context_options {
  uint32_t threads; /* 0: one per core */
  const char *cpu;  /* NULL: MLLM_CPU or the best */
  const mllm_cache_info *caches;
  uint32_t n_caches;
} mllm_context_options;

mllm_status mllm_context_create(const mllm_context_options *options, mllm_context **context,
                                mllm_error *error);
void mllm_context_destroy(mllm_context *context);
/* Tokens held by a cache; end_run adds those that kv_store stages appended since begin_run. */
uint32_t mllm_context_cache_length(const mllm_context *context, int32_t cache);
void mllm_context_begin_run(mllm_context *context, int32_t cache);
void mllm_context_end_run(mllm_context *context, int32_t cache);
mllm_status mllm_context_cache_set_length(mllm_context *context, int32_t cache, uint32_t length,
                                          mllm_error *error);

mllm_status mllm_k_f32_linear(const mllm_call *call);
mllm_status mllm_k_f32_matmul(const mllm_call *call);
mllm_status mllm_k_f32_layer_norm(const mllm_call *call);
mllm_status mllm_k_f32_rms_norm(const mllm_call *call);
mllm_status mllm_k_f32_softmax(const mllm_call *call);
mllm_status mllm_k_f32_reduce(const mllm_call *call);
mllm_status mllm_k_cumsum(const mllm_call *call);
mllm_status mllm_k_f32_selective_scan(const mllm_call *call);
mllm_status mllm_k_f32_rope(const mllm_call *call);
mllm_status mllm_k_f32_attention(const mllm_call *call);
mllm_status mllm_k_f32_kv_store(const mllm_call *call);
mllm_status mllm_k_f32_paged_attention(const mllm_call *call);
mllm_status mllm_k_f32_elementwise(const mllm_call *call);
mllm_status mllm_k_i64_elementwise(const mllm_call *call);
mllm_status mllm_k_f32_embedding(const mllm_call *call);
mllm_status mllm_k_gather(const mllm_call *call);
mllm_status mllm_k_top_k(const mllm_call *call);
mllm_status mllm_k_transpose(const mllm_call *call);
mllm_status mllm_k_slice(const mllm_call *call);
mllm_status mllm_k_concat(const mllm_call *call);
mllm_status mllm_k_broadcast(const mllm_call *call);
mllm_status mllm_k_copy(const mllm_call *call);
mllm_status mllm_k_cast(const mllm_call *call);
mllm_status mllm_k_iota(const mllm_call *call);
mllm_status mllm_k_pad(const mllm_call *call);
mllm_status mllm_k_f32_patch_embed(const mllm_call *call);
mllm_status mllm_k_f32_conv(const mllm_call *call);
mllm_status mllm_k_f32_pool(const mllm_call *call);
mllm_status mllm_k_f32_resize(const mllm_call *call);
mllm_status mllm_k_quantize(const mllm_call *call);
mllm_status mllm_k_dequantize(const mllm_call *call);
mllm_status mllm_k_dynamic_quantize(const mllm_call *call);
mllm_status mllm_k_unpack(const mllm_call *call);
mllm_status mllm_k_quantized_linear(const mllm_call *call);
mllm_status mllm_k_f32_dequantized_linear(const mllm_call *call);
mllm_status mllm_k_f32_dequantized_embedding(const mllm_call *call);
mllm_status mllm_k_integer_matmul(const mllm_call *call);
mllm_status mllm_k_integer_conv(const mllm_call *call);
mllm_status mllm_k_device_call(const mllm_call *call);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MLLM_KERNELS_H */

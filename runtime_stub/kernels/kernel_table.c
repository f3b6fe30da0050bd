/* kernel_table.c - kernels by name, for the program reader. */
#include <string.h>

#include "mllm_kernels.h"

typedef struct named_kernel {
  const char *name;
  mllm_kernel function;
} named_kernel;

static const named_kernel kernels[] = {
    {"broadcast", mllm_k_broadcast},
    {"cast", mllm_k_cast},
    {"concat", mllm_k_concat},
    {"copy", mllm_k_copy},
    {"cumsum", mllm_k_cumsum},
    {"dequantize", mllm_k_dequantize},
    {"device_call", mllm_k_device_call},
    {"dynamic_quantize", mllm_k_dynamic_quantize},
    {"f32_attention", mllm_k_f32_attention},
    {"f32_conv", mllm_k_f32_conv},
    {"f32_dequantized_embedding", mllm_k_f32_dequantized_embedding},
    {"f32_dequantized_linear", mllm_k_f32_dequantized_linear},
    {"f32_elementwise", mllm_k_f32_elementwise},
    {"f32_embedding", mllm_k_f32_embedding},
    {"f32_kv_store", mllm_k_f32_kv_store},
    {"f32_layer_norm", mllm_k_f32_layer_norm},
    {"f32_linear", mllm_k_f32_linear},
    {"f32_matmul", mllm_k_f32_matmul},
    {"f32_paged_attention", mllm_k_f32_paged_attention},
    {"f32_patch_embed", mllm_k_f32_patch_embed},
    {"f32_pool", mllm_k_f32_pool},
    {"f32_reduce", mllm_k_f32_reduce},
    {"f32_resize", mllm_k_f32_resize},
    {"f32_rms_norm", mllm_k_f32_rms_norm},
    {"f32_rope", mllm_k_f32_rope},
    {"f32_selective_scan", mllm_k_f32_selective_scan},
    {"f32_softmax", mllm_k_f32_softmax},
    {"gather", mllm_k_gather},
    {"i64_elementwise", mllm_k_i64_elementwise},
    {"integer_conv", mllm_k_integer_conv},
    {"integer_matmul", mllm_k_integer_matmul},
    {"iota", mllm_k_iota},
    {"pad", mllm_k_pad},
    {"quantize", mllm_k_quantize},
    {"quantized_linear", mllm_k_quantized_linear},
    {"slice", mllm_k_slice},
    {"top_k", mllm_k_top_k},
    {"transpose", mllm_k_transpose},
    {"unpack", mllm_k_unpack},
};

enum { KERNELS = sizeof kernels / sizeof kernels[0] };

mllm_kernel mllm_find_kernel(const char *name) {
  for (size_t i = 0; i < KERNELS; i++) {
    if (strcmp(kernels[i].name, name) == 0) return kernels[i].function;
  }
  return NULL;
}

const char *mllm_kernel_name(uint32_t index) {
  return index < KERNELS ? kernels[index].name : NULL;
}

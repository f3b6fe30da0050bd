/* code_operands.h - reading and checking the operands of a kernel that are codes. */
#ifndef MLLM_CODE_OPERANDS_H
#define MLLM_CODE_OPERANDS_H

#include "operands.h"

/* A format of params: what one code is. */
bool mllm_code_format_of(int64_t format, uint32_t *bits, bool *is_signed);

/* Params code, zero_code and block_size from position at on; block_size 0: one block. */
typedef struct mllm_code_params {
  int64_t format;
  int64_t zero_format;
  int64_t block_size;
} mllm_code_params;

/* The weight [n, depth] whose codes, scale and zero point are operands first.. of a call. False
 * where they do not fit each other. */
bool mllm_codes_make(const mllm_call *call, uint32_t first, size_t n, size_t depth,
                     const mllm_code_params *params, mllm_codes *codes);

static inline bool mllm_is_byte(const mllm_view *view) {
  return view->dtype == MLLM_I8 || view->dtype == MLLM_U8;
}

/* Element i of i8 or u8. */
static inline int32_t mllm_byte_at(const mllm_view *view, size_t i) {
  return view->dtype == MLLM_I8 ? ((const int8_t *)view->data)[i]
                                : (int32_t)((const uint8_t *)view->data)[i];
}

/* y[n] = x[n] - zero, from byte x on. */
void mllm_widen(int32_t *y, const mllm_view *x, size_t begin, size_t n, int32_t zero);

#endif /* MLLM_CODE_OPERANDS_H */

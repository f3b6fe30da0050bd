/* elementwise_program.h - the postfix program of f32_elementwise and i64_elementwise, checked. */
#ifndef MLLM_ELEMENTWISE_PROGRAM_H
#define MLLM_ELEMENTWISE_PROGRAM_H

#include "broadcast_walk.h"

enum { MLLM_EW_INPUTS = 8, MLLM_EW_DEPTH = 16, MLLM_EW_TILE = 512, MLLM_EW_GRAIN = 1 << 13 };

/* Operands, how each is walked, and the words. */
typedef struct mllm_elementwise {
  const mllm_ops *ops;
  const mllm_view *in;
  const mllm_view *out;
  mllm_walk walks[MLLM_EW_INPUTS];
  mllm_array words;
  uint32_t n_in;
} mllm_elementwise;

static inline uint64_t mllm_word_op(int64_t word) { return (uint64_t)word >> 32; }
static inline uint64_t mllm_word_arg(int64_t word) { return (uint64_t)word & 0xFFFFFFFFU; }

static inline bool mllm_op_is_constant(uint64_t op) {
  return op == MLLM_EW_CONST || op == MLLM_EW_ICONST;
}
static inline bool mllm_op_is_unary(uint64_t op) {
  return op >= MLLM_UNARY_FIRST && op < MLLM_UNARY_FIRST + MLLM_UNARY_COUNT;
}
static inline bool mllm_op_is_binary(uint64_t op) {
  return op >= MLLM_BINARY_FIRST && op < MLLM_BINARY_FIRST + MLLM_BINARY_COUNT;
}

/* Reads operands and program: loads in range, no more than MLLM_EW_DEPTH values, one left, the
 * shapes broadcast. Whether the kernel has each op is for has_op to say. */
mllm_status mllm_elementwise_read(const mllm_call *call, bool (*has_op)(const mllm_ops *, uint64_t),
                                  mllm_elementwise *program);

#endif /* MLLM_ELEMENTWISE_PROGRAM_H */

/* elementwise_program.c - the check that lets the interpreters trust their words. */
#include "elementwise_program.h"

/* Values that the op takes; -1: no such op. */
static int arity(uint64_t op) {
  if (op == MLLM_EW_LOAD || mllm_op_is_constant(op)) return 0;
  if (op == MLLM_EW_SELECT) return 3;
  if (mllm_op_is_unary(op)) return 1;
  return mllm_op_is_binary(op) ? 2 : -1;
}

static bool words_fit(const mllm_elementwise *program, bool (*has_op)(const mllm_ops *, uint64_t)) {
  int depth = 0;
  for (size_t i = 0; i < program->words.count; i++) {
    const uint64_t op = mllm_word_op(program->words.values[i]);
    const int taken = arity(op);
    if (taken < 0 || depth < taken) return false;
    if (taken > 0 && op != MLLM_EW_SELECT && !has_op(program->ops, op)) return false;
    if (op == MLLM_EW_LOAD && mllm_word_arg(program->words.values[i]) >= program->n_in)
      return false;
    if (mllm_op_is_constant(op) && ++i == program->words.count) return false;
    depth += 1 - taken;
    if (depth > MLLM_EW_DEPTH) return false;
  }
  return depth == 1;
}

mllm_status mllm_elementwise_read(const mllm_call *call, bool (*has_op)(const mllm_ops *, uint64_t),
                                  mllm_elementwise *program) {
  uint32_t position = 0;
  memset(program, 0, sizeof *program);
  if (call->n_in > MLLM_EW_INPUTS || call->n_out != 1 ||
      !mllm_param_array(call, &position, &program->words)) {
    return MLLM_REJECT(call, "elementwise takes at most %d operands, and a program",
                       MLLM_EW_INPUTS);
  }
  program->ops = call->context->ops;
  program->in = call->in;
  program->out = &call->out[0];
  program->n_in = call->n_in;
  for (uint32_t i = 0; i < call->n_in; i++) {
    if (!mllm_is_present(&call->in[i]) ||
        !mllm_walk_make(&call->in[i], program->out, &program->walks[i])) {
      return MLLM_REJECT(call, "elementwise: operand %u does not broadcast to the result", i);
    }
  }
  if (!words_fit(program, has_op)) {
    return MLLM_REJECT(call, "elementwise: malformed program");
  }
  return MLLM_OK;
}

/* program.h - a program whose every offset and index has been checked. */
#ifndef MLLM_PROGRAM_READER_H
#define MLLM_PROGRAM_READER_H

#include <stdbool.h>

#include "mllm_kernels.h"
#include "mllm_program.h"

/* Pointers lie in bytes, which the program owns. Counts are elements. */
typedef struct mllm_program {
  unsigned char *bytes;
  const char *strings;
  const mllm_symbol_record *symbols;
  const int64_t *expr_words;
  const mllm_expr_record *exprs;
  const mllm_tensor_record *tensors;
  const uint32_t *arg_ids;
  const int64_t *params;
  const uint8_t *param_kinds;
  const mllm_kernel_record *kernels;
  const mllm_stage_record *stages;
  const mllm_entry_record *entries;
  const mllm_cache_record *caches;
  uint32_t counts[MLLM_SECTION_COUNT];
  uint64_t arena_bytes;
  uint64_t weight_bytes;
  mllm_kernel *functions; /* [kernels] */
  uint32_t max_operands;  /* of any stage, inputs and outputs */
  uint32_t max_params;    /* of any stage */
  uint64_t padding_bytes; /* padded tensors of any graph that serves an entry by a bucket */
  uint32_t padded_ports;  /* their number: inputs and outputs */
} mllm_program;

/* Copies and checks; on failure nothing is left to free. */
mllm_status mllm_program_read(const void *bytes, size_t size, mllm_program *program,
                              mllm_error *error);
void mllm_program_free(mllm_program *program);

static inline const char *mllm_program_string(const mllm_program *program, uint32_t reference) {
  return program->strings + reference;
}

#endif /* MLLM_PROGRAM_READER_H */

/* buckets.h - the table of an entry of any shape that graphs of static shapes serve. */
#ifndef MLLM_BUCKETS_H
#define MLLM_BUCKETS_H

#include "program.h"

/* What an input that says how much of a symbol is real is called, before the symbol's name. */
#define MLLM_LENGTH_PREFIX "length."

enum { MLLM_PADDING_ALIGNMENT = 64 };

/* mllm_program.h says what it holds; it points into the program's params. */
typedef struct mllm_buckets {
  uint32_t n_symbols;
  uint32_t n_variants;
  const int64_t *symbols; /* [n_symbols, 2] symbol; 1: padding stands before its real elements */
  const int64_t *sizes;   /* [n_variants, n_symbols] */
} mllm_buckets;

/* The table of an entry that has one; false where it does not lie in the params. */
bool mllm_buckets_read(const mllm_program *program, const mllm_entry_record *entry,
                       mllm_buckets *buckets);

/* Whether an entry's table and the graphs behind the entry fit together. Notes in
 * program.padding_bytes and program.padded_ports what the largest graph needs. */
bool mllm_buckets_check(mllm_program *program, uint32_t entry);

/* The symbol of the table whose length the tensor is, or -1. */
int64_t mllm_buckets_length_of(const mllm_program *program, const mllm_buckets *buckets,
                               const mllm_tensor_record *tensor);

/* The bytes that a padded tensor takes among others. */
static inline uint64_t mllm_padded_bytes(const mllm_tensor_record *tensor) {
  return (tensor->max_bytes / MLLM_PADDING_ALIGNMENT + 1) * MLLM_PADDING_ALIGNMENT;
}

#endif /* MLLM_BUCKETS_H */

/* dims.h - symbols and the values of dim expressions in one run. */
#ifndef MLLM_DIMS_H
#define MLLM_DIMS_H

#include "program.h"

typedef struct mllm_dims {
  const mllm_program *program;
  int64_t *symbols; /* [symbols] -1: not bound */
  int64_t *values;  /* [exprs] */
  uint32_t *stamps; /* [exprs] values[i] is of this run where stamps[i] == run */
  uint32_t run;
} mllm_dims;

/* Memory for a program's symbols and exprs. */
mllm_status mllm_dims_create(mllm_dims *dims, const mllm_program *program, mllm_error *error);
void mllm_dims_free(mllm_dims *dims);

/* Forgets symbols and values. */
void mllm_dims_reset(mllm_dims *dims);

/* Binds a symbol, or compares where it is bound; located at what ("input 'pixel_values'"). */
mllm_status mllm_dims_bind(mllm_dims *dims, uint32_t symbol, int64_t value, const char *what,
                           mllm_error *error);

/* The index of the symbol that the expr is, or -1. */
int64_t mllm_dims_bare_symbol(const mllm_program *program, uint32_t expr);
/* The expr's value where it is a constant, or -1. */
int64_t mllm_dims_constant(const mllm_program *program, uint32_t expr);

/* Evaluates, remembers the value for this run. */
mllm_status mllm_dims_value(mllm_dims *dims, uint32_t expr, int64_t *value, mllm_error *error);

/* Evaluates dims[0..rank] and the product times the element size, each checked for overflow. */
mllm_status mllm_dims_shape(mllm_dims *dims, const mllm_tensor_record *tensor, int64_t *shape,
                            uint64_t *bytes, mllm_error *error);

/* Writes the expr as infix text, NUL-terminated and cut where it does not fit. */
mllm_status mllm_dims_text(const mllm_program *program, uint32_t expr, char *text, size_t bytes);

#endif /* MLLM_DIMS_H */

/* padding.h - a run over graphs of static shapes: choose the smallest that fits, pad, run, cut. */
#ifndef MLLM_PADDING_H
#define MLLM_PADDING_H

#include "program.h"

/* Where the real elements of a padded tensor stand. */
typedef struct mllm_box {
  int64_t start[MLLM_MAX_RANK];
  int64_t count[MLLM_MAX_RANK];
} mllm_box;

/* What such a run works with; taken once, with the session. */
typedef struct mllm_padding {
  unsigned char *memory; /* [program.padding_bytes] the padded tensors of one graph */
  void *taken;           /* to free */
  mllm_tensor *tensors;  /* [program.padded_ports] inputs of the graph, then its outputs */
  mllm_box *boxes;       /* [program.padded_ports] of the entry's inputs, then its outputs */
  int64_t *values;       /* [symbols] those of the run */
  uint64_t bytes;        /* all of it */
} mllm_padding;

/* Nothing where no entry has buckets; false where there is no memory. */
bool mllm_padding_take(mllm_padding *padding, const mllm_program *program);
void mllm_padding_free(mllm_padding *padding);

/* Runs an entry with buckets, whose inputs and outputs are bound and whose symbols have values. */
mllm_status mllm_padded_run(mllm_session *session, const mllm_entry_record *entry,
                            mllm_error *error);

#endif /* MLLM_PADDING_H */

/* Speculative decoding: tokens that are guessed, verified in one run, and kept as far as the model
 * itself would have given them. */
#ifndef MLLM_SPECULATE_H
#define MLLM_SPECULATE_H

#include "feed.h"

enum { MLLM_MOST_DRAFTS = 16 };

typedef struct mllm_speculation {
  uint32_t most;         /* drafts of a run; 0: none */
  mllm_generator *draft; /* what guesses; NULL: the conversation's own tokens */
  mllm_feed verify;      /* an entry that gives the logits of every token */
  double *p;             /* [vocabulary] */
  double *q;             /* [MLLM_MOST_DRAFTS, vocabulary], with a draft model that samples */
} mllm_speculation;

/* Finds the entry and takes memory, where the options ask for drafts. */
mllm_status mllm_speculation_start(mllm_generator *generator, const mllm_generate_options *options,
                                   mllm_error *error);
void mllm_speculation_free(mllm_speculation *speculation);

/* Lets the draft model know the prompt that was read. */
void mllm_speculation_hear(mllm_generator *generator);

/* Decides one token or more in one run. */
mllm_status mllm_speculate(mllm_generator *generator, mllm_error *error);

/* Guesses up to `most` tokens that follow ids[0 .. count): what came behind the last earlier place of
 * the longest end of them, of at most three tokens. Returns how many. */
uint32_t mllm_look_up(const uint32_t *ids, uint32_t count, uint32_t most, uint32_t *drafts);

#endif

/* Choosing the next token. The same logits, settings and seed give the same token on every machine:
 * the generator, the exponential and the order of all sums are fixed here.
 *
 * Generator: xoshiro256** (Blackman & Vigna 2018), its state four outputs of splitmix64 from the
 * seed. A draw is the upper 53 bits of an output, times 2^-53. Candidates stand in descending order
 * of their probability (the lower id first among equals); top-p keeps the shortest prefix whose
 * weight reaches top_p of the whole; the draw falls into the prefix in that order. */
#ifndef MLLM_SAMPLING_H
#define MLLM_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

enum { MLLM_SUPPRESSED = 1, MLLM_SUPPRESSED_FIRST = 2 }; /* never; not as the first new token */

typedef struct mllm_random {
  uint64_t state[4];
} mllm_random;

void mllm_random_seed(mllm_random *random, uint64_t seed);
uint64_t mllm_random_next(mllm_random *random);

/* exp(x) for x <= 0 within 2e-15 relative, by additions and products of doubles only. */
double mllm_fixed_exp(double x);

typedef struct mllm_sampler {
  double temperature; /* 0: the most probable token */
  double top_p;       /* 1: all tokens */
  mllm_random random;
  const uint8_t *suppressed; /* [vocabulary] MLLM_SUPPRESSED*, or NULL */
  double *weights;           /* [vocabulary] working memory, as */
  uint32_t *order;           /* [vocabulary]; both NULL where temperature is 0 */
} mllm_sampler;

/* The next token; `first`: no token was generated yet. `vocabulary` > 0. */
uint32_t mllm_sample(mllm_sampler *sampler, const float *logits, size_t vocabulary, int first);

/* shares[vocabulary]: the probabilities that mllm_sample draws by, after the first token. */
void mllm_shares(mllm_sampler *sampler, const float *logits, size_t vocabulary, double *shares);

/* A token by its probability; p need not sum to 1, but to more than 0. */
uint32_t mllm_draw(mllm_random *random, const double *p, size_t vocabulary);

/* The next token of a model that gives p[vocabulary], where another has drawn `draft` by
 * q[vocabulary] (NULL: it always says draft): the draft with probability min(1, p / q), else a token
 * by max(0, p - q), which p becomes. So tokens come by p (Leviathan et al. 2023, theorem 3.5). */
uint32_t mllm_accept(mllm_random *random, double *p, const double *q, uint32_t draft,
                     size_t vocabulary);

#endif

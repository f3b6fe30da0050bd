#include "sampling.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

void mllm_random_seed(mllm_random *random, uint64_t seed) {
  for (int i = 0; i < 4; i++) {
    seed += 0x9E3779B97F4A7C15u;
    uint64_t z = seed;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    random->state[i] = z ^ z >> 31;
  }
}

uint64_t mllm_random_next(mllm_random *random) {
  uint64_t *s = random->state;
  const uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate(s[3], 45);
  return result;
}

double mllm_fixed_exp(double x) {
  if (!(x > -700.0)) return 0.0;
  /* x = n ln 2 + r, |r| <= ln 2 / 2: a series of 13 terms in r, then 2^n by its bits */
  const double n = floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double sum = 1.0;
  for (int k = 13; k > 0; k--) sum = 1.0 + sum * r / k;
  const uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return sum * power;
}

static bool may(const mllm_sampler *sampler, size_t id, int first) {
  if (sampler->suppressed == NULL) return true;
  const uint8_t flags = sampler->suppressed[id];
  return (flags & MLLM_SUPPRESSED) == 0 && (first == 0 || (flags & MLLM_SUPPRESSED_FIRST) == 0);
}

static uint32_t most_probable(const mllm_sampler *sampler, const float *logits, size_t vocabulary,
                              int first) {
  size_t best = vocabulary;
  for (size_t i = 0; i < vocabulary; i++) {
    if (best < vocabulary && !(logits[i] > logits[best])) continue;
    if (isnan(logits[i]) || !may(sampler, i, first)) continue;
    best = i;
  }
  return (uint32_t)(best < vocabulary ? best : 0);
}

/* Whether candidate a stands before candidate b. */
static bool before(const mllm_sampler *s, uint32_t a, uint32_t b) {
  return s->weights[a] != s->weights[b] ? s->weights[a] > s->weights[b] : a < b;
}

/* Moves the candidate at `at` down until no child stands before it. */
static void sift(mllm_sampler *s, size_t at, size_t count) {
  const uint32_t moved = s->order[at];
  for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && before(s, s->order[child + 1], s->order[child])) child++;
    if (!before(s, s->order[child], moved)) break;
    s->order[at] = s->order[child];
    at = child;
  }
  s->order[at] = moved;
}

/* Sorts candidates to the back of `order`, best last, until their weight reaches `wanted`. Returns
 * the first index of the sorted part; *kept is its weight. */
static size_t keep(mllm_sampler *s, size_t count, double wanted, double *kept) {
  for (size_t i = count / 2; i > 0; i--) sift(s, i - 1, count);
  size_t left = count;
  *kept = 0.0;
  while (left > 0 && (left == count || *kept < wanted)) {
    const uint32_t best = s->order[0];
    s->order[0] = s->order[--left];
    s->order[left] = best;
    *kept += s->weights[best];
    sift(s, 0, left);
  }
  return left;
}

/* The candidates in order: order[*end .. count), best last, have the weight *kept. Returns count, 0
 * where only the best may be taken. */
static size_t candidates(mllm_sampler *s, const float *logits, size_t vocabulary, int first,
                         uint32_t *best, size_t *end, double *kept) {
  *best = most_probable(s, logits, vocabulary, first);
  if (!(s->temperature > 0.0) || s->weights == NULL) return 0;
  const double peak = logits[*best];
  double whole = 0.0;
  size_t count = 0;
  for (size_t i = 0; i < vocabulary; i++) {
    if (!may(s, i, first)) continue;
    s->weights[i] = mllm_fixed_exp((logits[i] - peak) / s->temperature);
    if (!(s->weights[i] > 0.0)) continue;
    whole += s->weights[i];
    s->order[count++] = (uint32_t)i;
  }
  if (count > 0) *end = keep(s, count, s->top_p * whole, kept);
  return count;
}

static double uniform(mllm_random *random) {
  return (double)(mllm_random_next(random) >> 11) * 0x1p-53;
}

uint32_t mllm_sample(mllm_sampler *sampler, const float *logits, size_t vocabulary, int first) {
  uint32_t best;
  size_t end;
  double kept;
  const size_t count = candidates(sampler, logits, vocabulary, first, &best, &end, &kept);
  if (count == 0) return best;
  const double draw = uniform(&sampler->random) * kept;
  double sum = 0.0;
  for (size_t i = count; i > end; i--) {
    sum += sampler->weights[sampler->order[i - 1]];
    if (draw < sum) return sampler->order[i - 1];
  }
  return sampler->order[end];
}

void mllm_shares(mllm_sampler *sampler, const float *logits, size_t vocabulary, double *shares) {
  uint32_t best;
  size_t end;
  double kept;
  const size_t count = candidates(sampler, logits, vocabulary, 0, &best, &end, &kept);
  for (size_t i = 0; i < vocabulary; i++) shares[i] = 0.0;
  if (count == 0) shares[best] = 1.0;
  for (size_t i = count; count > 0 && i > end; i--) {
    const uint32_t id = sampler->order[i - 1];
    shares[id] = sampler->weights[id] / kept;
  }
}

uint32_t mllm_draw(mllm_random *random, const double *p, size_t vocabulary) {
  double whole = 0.0, sum = 0.0;
  for (size_t i = 0; i < vocabulary; i++) whole += p[i];
  const double draw = uniform(random) * whole;
  uint32_t last = 0;
  for (size_t i = 0; i < vocabulary; i++) {
    if (!(p[i] > 0.0)) continue;
    sum += p[i];
    last = (uint32_t)i;
    if (draw < sum) break;
  }
  return last;
}

uint32_t mllm_accept(mllm_random *random, double *p, const double *q, uint32_t draft,
                     size_t vocabulary) {
  const double said = q == NULL ? 1.0 : q[draft];
  if (uniform(random) * said < p[draft]) return draft;
  for (size_t i = 0; i < vocabulary; i++) {
    const double by = q != NULL ? q[i] : i == draft ? 1.0 : 0.0;
    p[i] = p[i] > by ? p[i] - by : 0.0;
  }
  return mllm_draw(random, p, vocabulary);
}

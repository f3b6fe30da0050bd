/* runs.c - best fit over the free runs of a bit map, 64 units a step. */
#include "runs.h"

#include <stdlib.h>
#include <string.h>

bool mllm_runs_make(mllm_runs *runs, uint32_t units) {
  *runs = (mllm_runs){.units = units, .bits = calloc(units / 64 + 1, sizeof *runs->bits)};
  return runs->bits != NULL;
}

void mllm_runs_free(mllm_runs *runs) {
  free(runs->bits);
  memset(runs, 0, sizeof *runs);
}

/* The first unit from here on that is in use, or that is free; how many units there are, where none is. */
static uint32_t next(const mllm_runs *runs, uint32_t from, bool in_use) {
  const uint64_t other = in_use ? 0 : UINT64_MAX;
  uint64_t seen = UINT64_MAX << (from % 64);
  for (uint32_t word = from / 64; word <= runs->units / 64; word++, seen = UINT64_MAX) {
    const uint64_t found = (runs->bits[word] ^ other) & seen;
    if (found == 0) continue;
    const uint32_t unit = word * 64 + (uint32_t)__builtin_ctzll(found);
    return unit < runs->units ? unit : runs->units;
  }
  return runs->units;
}

/* The next free run from *end on: its first unit, and in *end where it ends. */
static uint32_t next_free(const mllm_runs *runs, uint32_t *end) {
  const uint32_t first = next(runs, *end, false);
  *end = next(runs, first, true);
  return first;
}

static void flip(mllm_runs *runs, uint32_t first, uint32_t count) {
  while (count > 0) {
    const uint32_t into = first % 64, part = count < 64 - into ? count : 64 - into;
    runs->bits[first / 64] ^= UINT64_MAX >> (64 - part) << into;
    first += part;
    count -= part;
  }
}

uint32_t mllm_runs_take(mllm_runs *runs, uint32_t count) {
  uint32_t best = MLLM_NO_UNIT, shortest = UINT32_MAX;
  for (uint32_t end = 0; end < runs->units && shortest > count;) {
    const uint32_t first = next_free(runs, &end), length = end - first;
    if (length < count || length >= shortest) continue;
    best = first;
    shortest = length;
  }
  if (best == MLLM_NO_UNIT) return best;
  flip(runs, best, count);
  runs->used += count;
  return best;
}

void mllm_runs_give(mllm_runs *runs, uint32_t first, uint32_t count) {
  flip(runs, first, count);
  runs->used -= count;
}

uint32_t mllm_runs_longest(const mllm_runs *runs) {
  uint32_t longest = 0;
  for (uint32_t end = 0; end < runs->units;) {
    const uint32_t first = next_free(runs, &end);
    if (end - first > longest) longest = end - first;
  }
  return longest;
}

uint32_t mllm_runs_free_below(const mllm_runs *runs, uint32_t count) {
  uint32_t found = 0;
  for (uint32_t end = 0; end < runs->units;) {
    const uint32_t first = next_free(runs, &end);
    if (end - first < count) found += end - first;
  }
  return found;
}

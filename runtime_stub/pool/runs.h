/* runs.h - runs of units of 1 MiB, of any length and at any unit, by a bit for each unit. */
#ifndef MLLM_RUNS_H
#define MLLM_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#define MLLM_UNIT_BYTES ((uint64_t)1 << 20)
#define MLLM_NO_UNIT    UINT32_MAX

typedef struct mllm_runs {
  uint32_t units;
  uint32_t used;
  uint64_t *bits; /* a bit for each unit: it is in use */
} mllm_runs;

/* No unit is in use. false: no memory. */
bool mllm_runs_make(mllm_runs *runs, uint32_t units);
void mllm_runs_free(mllm_runs *runs);

/* The first unit of a run of count units; MLLM_NO_UNIT where none is free. It is cut from the low end of
 * the shortest free run that has room, and of several as short from the lowest. */
uint32_t mllm_runs_take(mllm_runs *runs, uint32_t count);
/* Gives back units, which join the free ones on either side. */
void mllm_runs_give(mllm_runs *runs, uint32_t first, uint32_t count);

/* Units of the longest free run, and all free units in runs of less than count. */
uint32_t mllm_runs_longest(const mllm_runs *runs);
uint32_t mllm_runs_free_below(const mllm_runs *runs, uint32_t count);

#endif /* MLLM_RUNS_H */

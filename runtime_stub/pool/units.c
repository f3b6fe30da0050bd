/* units.c - giving units out, and keeping their pages within the pool's memory. */
#include "units.h"

#include <stdlib.h>
#include <string.h>

static bool has(const uint64_t *bits, uint32_t unit) {
  return (bits[unit / 64] >> (unit % 64) & 1) != 0;
}

bool mllm_units_make(mllm_units *units, uint32_t addresses, uint32_t memory,
                     mllm_pool_region *region, const mllm_pool_backend *backend) {
  *units = (mllm_units){.memory = memory, .region = region, .backend = backend,
                        .pages = calloc(addresses / 64 + 1, sizeof *units->pages)};
  return mllm_runs_make(&units->runs, addresses) && units->pages != NULL;
}

void mllm_units_free(mllm_units *units) {
  mllm_runs_free(&units->runs);
  free(units->pages);
  memset(units, 0, sizeof *units);
}

/* A free unit with pages. */
static bool is_spare(const mllm_units *units, uint32_t unit) {
  return has(units->pages, unit) && !has(units->runs.bits, unit);
}

/* Has so many free units give their pages back, the highest first: they are used least. */
static bool drop(mllm_units *units, uint32_t count) {
  for (uint32_t end = units->runs.units; count > 0 && end > 0;) {
    uint32_t first = end;
    while (first > 0 && end - first < count && is_spare(units, first - 1)) first--;
    const uint32_t found = end - first;
    end = found == 0 ? end - 1 : first;
    if (found == 0) continue;
    if (units->backend->drop(units->backend->context, units->region, first * MLLM_UNIT_BYTES,
                             found * MLLM_UNIT_BYTES, NULL) != MLLM_OK)
      return false;
    for (uint32_t i = 0; i < found; i++)
      units->pages[(first + i) / 64] &= ~((uint64_t)1 << ((first + i) % 64));
    units->paged -= found;
    units->dropped += found;
    count -= found;
  }
  return count == 0;
}

/* The units of a run may have pages. */
static bool provide(mllm_units *units, uint32_t first, uint32_t count) {
  uint32_t without = 0;
  for (uint32_t i = first; i < first + count; i++) without += !has(units->pages, i);
  const uint32_t room = units->memory - units->paged;
  if (without > room && !drop(units, without - room)) return false;
  for (uint32_t i = first; i < first + count; i++)
    units->pages[i / 64] |= (uint64_t)1 << (i % 64);
  units->paged += without;
  return true;
}

uint32_t mllm_units_take(mllm_units *units, uint32_t count) {
  if (count > units->memory - units->runs.used) return MLLM_NO_UNIT;
  const uint32_t first = mllm_runs_take(&units->runs, count);
  if (first == MLLM_NO_UNIT || provide(units, first, count)) return first;
  mllm_runs_give(&units->runs, first, count);
  return MLLM_NO_UNIT;
}

void mllm_units_give(mllm_units *units, uint32_t first, uint32_t count) {
  mllm_runs_give(&units->runs, first, count);
}

bool mllm_units_warm(mllm_units *units, uint32_t unit) {
  return has(units->pages, unit) || (units->paged < units->memory && provide(units, unit, 1));
}

uint32_t mllm_units_longest(const mllm_units *units) {
  const uint32_t longest = mllm_runs_longest(&units->runs);
  const uint32_t free = units->memory - units->runs.used;
  return longest < free ? longest : free;
}

uint32_t mllm_units_lost(const mllm_units *units, uint32_t count) {
  const mllm_runs *runs = &units->runs;
  const uint32_t free = units->memory - runs->used;
  if (free < count) return free;
  const uint32_t within = runs->units - runs->used - mllm_runs_free_below(runs, count);
  return free > within ? free - within : 0;
}

/* buddy.c - blocks by their order (Knowlton 1965), a bit for each place where one can be free. */
#include "buddy.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_ORDER = 1 /* up to here blocks come from the low end */ };

static size_t words_of(uint32_t units, uint32_t order) { return (units >> order) / 64 + 1; }

static bool is_free(const mllm_buddy *buddy, uint32_t order, uint32_t place) {
  return (buddy->bits[order][place / 64] >> (place % 64) & 1) != 0;
}

static void flip(mllm_buddy *buddy, uint32_t order, uint32_t place) {
  buddy->bits[order][place / 64] ^= (uint64_t)1 << (place % 64);
  buddy->counts[order] += is_free(buddy, order, place) ? 1u : UINT32_MAX;
}

static void give_block(mllm_buddy *buddy, uint32_t first, uint32_t order) {
  uint32_t place = first >> order;
  for (; order + 1 < MLLM_BUDDY_ORDERS; order++, place /= 2) {
    const uint64_t end = ((uint64_t)(place ^ 1) + 1) << order;
    if (end > buddy->units || !is_free(buddy, order, place ^ 1)) break;
    flip(buddy, order, place ^ 1);
  }
  flip(buddy, order, place);
}

static void give_run(mllm_buddy *buddy, uint32_t first, uint32_t count) {
  while (count > 0) {
    uint32_t order = 0;
    while (order + 1 < MLLM_BUDDY_ORDERS && (first & (1u << order)) == 0 && (2u << order) <= count)
      order++;
    give_block(buddy, first, order);
    first += 1u << order;
    count -= 1u << order;
  }
}

bool mllm_buddy_make(mllm_buddy *buddy, uint32_t units) {
  *buddy = (mllm_buddy){.units = units, .free = units};
  size_t words = 0;
  for (uint32_t i = 0; i < MLLM_BUDDY_ORDERS; i++) words += words_of(units, i);
  buddy->words = calloc(words, sizeof *buddy->words);
  if (buddy->words == NULL) return false;
  words = 0;
  for (uint32_t i = 0; i < MLLM_BUDDY_ORDERS; i++) {
    buddy->bits[i] = buddy->words + words;
    words += words_of(units, i);
  }
  give_run(buddy, 0, units);
  return true;
}

void mllm_buddy_free(mllm_buddy *buddy) {
  free(buddy->words);
  memset(buddy, 0, sizeof *buddy);
}

uint32_t mllm_buddy_round(uint32_t count) {
  uint32_t rounded = 1;
  while (rounded < count) rounded *= 2;
  return rounded;
}

/* The place of a free block of an order that has one. */
static uint32_t find(const mllm_buddy *buddy, uint32_t order, bool low) {
  const uint64_t *bits = buddy->bits[order];
  size_t word = low ? 0 : words_of(buddy->units, order) - 1;
  while (bits[word] == 0) word = low ? word + 1 : word - 1;
  const int bit = low ? __builtin_ctzll(bits[word]) : 63 - __builtin_clzll(bits[word]);
  return (uint32_t)(word * 64) + (uint32_t)bit;
}

uint32_t mllm_buddy_take(mllm_buddy *buddy, uint32_t count) {
  const uint32_t wanted = (uint32_t)__builtin_ctz(mllm_buddy_round(count));
  const bool low = wanted <= SMALL_ORDER;
  uint32_t order = wanted;
  while (order < MLLM_BUDDY_ORDERS && buddy->counts[order] == 0) order++;
  if (order >= MLLM_BUDDY_ORDERS) return MLLM_NO_UNIT;
  uint32_t place = find(buddy, order, low);
  flip(buddy, order, place);
  for (; order > wanted; order--) {
    place = 2 * place + (low ? 0 : 1);
    flip(buddy, order - 1, place ^ 1);
  }
  buddy->free -= 1u << wanted;
  return place << wanted;
}

void mllm_buddy_give(mllm_buddy *buddy, uint32_t first, uint32_t count) {
  buddy->free += count;
  give_run(buddy, first, count);
}

uint32_t mllm_buddy_largest(const mllm_buddy *buddy) {
  for (uint32_t order = MLLM_BUDDY_ORDERS; order-- > 0;)
    if (buddy->counts[order] > 0) return 1u << order;
  return 0;
}

uint32_t mllm_buddy_free_below(const mllm_buddy *buddy, uint32_t count) {
  uint32_t found = 0;
  for (uint32_t order = 0; order < MLLM_BUDDY_ORDERS && (1u << order) < count; order++)
    found += buddy->counts[order] << order;
  return found;
}

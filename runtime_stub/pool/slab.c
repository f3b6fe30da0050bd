/* slab.c - pieces of one size by a bit each; nothing is written into the memory itself. */
#include "slab.h"

#include <stdlib.h>
#include <string.h>

static void make_sizes(mllm_slabs *slabs) {
  uint32_t n = 0;
  for (uint32_t size = 64; size < 256; size += 64) slabs->sizes[n++] = size;
  for (uint32_t base = 256; base < 128 << 10; base *= 2)
    for (uint32_t i = 0; i < 4; i++) slabs->sizes[n++] = base + i * (base / 4);
  slabs->sizes[n++] = 128 << 10;
  slabs->sizes[n++] = 256 << 10;
  slabs->sizes[n++] = 512 << 10;
}

bool mllm_slabs_make(mllm_slabs *slabs, uint32_t units) {
  memset(slabs, 0, sizeof *slabs);
  make_sizes(slabs);
  for (uint32_t i = 0; i < MLLM_SLAB_CLASSES; i++) slabs->heads[i] = MLLM_NO_UNIT;
  slabs->slabs = calloc(units, sizeof *slabs->slabs);
  slabs->bits = calloc((size_t)units * MLLM_SLAB_WORDS, sizeof *slabs->bits);
  return slabs->slabs != NULL && slabs->bits != NULL;
}

void mllm_slabs_free(mllm_slabs *slabs) {
  free(slabs->slabs);
  free(slabs->bits);
  memset(slabs, 0, sizeof *slabs);
}

uint32_t mllm_slab_class(const mllm_slabs *slabs, uint64_t bytes) {
  uint32_t class = 0;
  while (slabs->sizes[class] < bytes) class++;
  return class;
}

static uint32_t pieces(const mllm_slabs *slabs, uint32_t class) {
  return (uint32_t)MLLM_UNIT_BYTES / slabs->sizes[class];
}

static void push(mllm_slabs *slabs, uint32_t class, uint32_t unit) {
  const uint32_t head = slabs->heads[class];
  slabs->slabs[unit].next = head;
  slabs->slabs[unit].previous = MLLM_NO_UNIT;
  if (head != MLLM_NO_UNIT) slabs->slabs[head].previous = unit;
  slabs->heads[class] = unit;
}

static void drop(mllm_slabs *slabs, uint32_t class, uint32_t unit) {
  const mllm_slab slab = slabs->slabs[unit];
  if (slab.next != MLLM_NO_UNIT) slabs->slabs[slab.next].previous = slab.previous;
  if (slab.previous != MLLM_NO_UNIT) slabs->slabs[slab.previous].next = slab.next;
  if (slabs->heads[class] == unit) slabs->heads[class] = slab.next;
}

static uint32_t first_clear(const uint64_t *words, uint32_t word) {
  while (~words[word] == 0) word++;
  return word * 64 + (uint32_t)__builtin_ctzll(~words[word]);
}

uint64_t mllm_slab_take(mllm_slabs *slabs, mllm_units *units, uint32_t class) {
  if (slabs->heads[class] == MLLM_NO_UNIT) {
    const uint32_t unit = mllm_units_take(units, 1);
    if (unit == MLLM_NO_UNIT) return UINT64_MAX;
    slabs->slabs[unit] = (mllm_slab){0};
    slabs->held += MLLM_UNIT_BYTES;
    push(slabs, class, unit);
  }
  const uint32_t unit = slabs->heads[class];
  mllm_slab *slab = &slabs->slabs[unit];
  uint64_t *words = slabs->bits + (size_t)unit * MLLM_SLAB_WORDS;
  const uint32_t piece = first_clear(words, slab->hint);
  words[piece / 64] |= (uint64_t)1 << (piece % 64);
  slab->hint = piece / 64;
  if (++slab->used == pieces(slabs, class)) drop(slabs, class, unit);
  return unit * MLLM_UNIT_BYTES + (uint64_t)piece * slabs->sizes[class];
}

void mllm_slab_give(mllm_slabs *slabs, mllm_units *units, uint32_t class, uint64_t offset) {
  const uint32_t unit = (uint32_t)(offset / MLLM_UNIT_BYTES);
  const uint32_t piece = (uint32_t)(offset % MLLM_UNIT_BYTES) / slabs->sizes[class];
  mllm_slab *slab = &slabs->slabs[unit];
  slabs->bits[(size_t)unit * MLLM_SLAB_WORDS + piece / 64] &= ~((uint64_t)1 << (piece % 64));
  if (slab->used == pieces(slabs, class)) push(slabs, class, unit);
  if (piece / 64 < slab->hint) slab->hint = piece / 64;
  if (--slab->used > 0) return;
  drop(slabs, class, unit);
  slabs->held -= MLLM_UNIT_BYTES;
  mllm_units_give(units, unit, 1);
}

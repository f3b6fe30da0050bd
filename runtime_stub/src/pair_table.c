#include "pair_table.h"

#define NO_NODE 0xFFFFFFFFu

/* A pair that may merge: its left node, and what the pair was when it was queued. */
typedef struct candidate {
  uint32_t rank;
  uint32_t node;
  uint32_t merged;
} candidate;

typedef struct queue {
  candidate *items; /* binary heap, lowest rank, then leftmost, first */
  size_t count;
} queue;

typedef struct node {
  uint32_t id; /* MLLM_NO_TOKEN: merged away */
  uint32_t before;
  uint32_t after;
} node;

const uint32_t *mllm_pair_find(const mllm_tokenizer *tokenizer, uint32_t left, uint32_t right) {
  if (tokenizer->n_slots == 0) return NULL;
  const uint32_t mask = tokenizer->n_slots - 1;
  uint32_t at = mllm_pair_hash(left, right) & mask;
  for (uint32_t tries = 0; tries < tokenizer->n_slots; tries++, at = (at + 1) & mask) {
    const uint32_t *slot = tokenizer->slots + 4 * (size_t)at;
    if (slot[0] == MLLM_NO_TOKEN) return NULL;
    if (slot[0] == left && slot[1] == right) return slot;
  }
  return NULL;
}

static bool sooner(candidate a, candidate b) {
  return a.rank != b.rank ? a.rank < b.rank : a.node < b.node;
}

static void push(queue *heap, candidate item) {
  size_t at = heap->count++;
  while (at > 0 && sooner(item, heap->items[(at - 1) / 2])) {
    heap->items[at] = heap->items[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap->items[at] = item;
}

static candidate pop(queue *heap) {
  const candidate top = heap->items[0], last = heap->items[--heap->count];
  size_t at = 0;
  for (size_t child = 1; child < heap->count; child = 2 * at + 1) {
    if (child + 1 < heap->count && sooner(heap->items[child + 1], heap->items[child])) child++;
    if (!sooner(heap->items[child], last)) break;
    heap->items[at] = heap->items[child];
    at = child;
  }
  heap->items[at] = last;
  return top;
}

static void offer(const mllm_tokenizer *tokenizer, queue *heap, const node *nodes, uint32_t left) {
  if (left == NO_NODE || nodes[left].after == NO_NODE) return;
  const uint32_t *slot = mllm_pair_find(tokenizer, nodes[left].id, nodes[nodes[left].after].id);
  if (slot != NULL) push(heap, (candidate){slot[2], left, slot[3]});
}

/* Joins the candidate's pair if both halves are still what they were. */
static void join(const mllm_tokenizer *tokenizer, queue *heap, node *nodes, candidate best) {
  node *left = &nodes[best.node];
  if (left->id == MLLM_NO_TOKEN || left->after == NO_NODE) return;
  node *right = &nodes[left->after];
  const uint32_t *slot = mllm_pair_find(tokenizer, left->id, right->id);
  if (slot == NULL || slot[3] != best.merged) return;
  left->id = best.merged;
  left->after = right->after;
  right->id = MLLM_NO_TOKEN;
  if (left->after != NO_NODE) nodes[left->after].before = best.node;
  offer(tokenizer, heap, nodes, left->before);
  offer(tokenizer, heap, nodes, best.node);
}

size_t mllm_merge_word(const mllm_tokenizer *tokenizer, const uint8_t *word, size_t size,
                       uint32_t *scratch) {
  node *nodes = (node *)scratch; /* size nodes, then at most size + 2 * size candidates */
  queue heap = {(candidate *)(scratch + 3 * size), 0};
  uint32_t count = 0;
  for (size_t i = 0; i < size; i++) {
    const uint32_t id = tokenizer->byte_ids[word[i]];
    if (id == MLLM_NO_TOKEN)
      continue; /* a byte outside the vocabulary has no token: it is dropped */
    nodes[count] = (node){id, count > 0 ? count - 1 : NO_NODE, count + 1};
    count++;
  }
  if (count == 0) return 0;
  nodes[count - 1].after = NO_NODE;
  for (uint32_t i = 0; i + 1 < count; i++) offer(tokenizer, &heap, nodes, i);
  while (heap.count > 0) join(tokenizer, &heap, nodes, pop(&heap));
  size_t n = 0;
  for (uint32_t at = 0; at != NO_NODE; at = nodes[at].after)
    scratch[n++] = nodes[at].id; /* n <= at: a node is overwritten only after it was read */
  return n;
}

/* attention.h - the core that contiguous and paged attention share. */
#ifndef MLLM_ATTENTION_H
#define MLLM_ATTENTION_H

#include "operands.h"

enum { MLLM_KV_ROOM = MLLM_A_STRIDE /* rows that are decoded at a time */ };

/* softmax(scale Q K^T + bias, where allowed) V; query row r = (t, g) of a kv head is query t of
 * head kv_head * group + g. */
typedef struct mllm_attention {
  const mllm_ops *ops;
  const float *q; /* [batch, T, heads, dim] */
  float *y;       /* [batch, T, heads, v_dim] */
  mllm_kv_view k; /* of batch 0 */
  mllm_kv_view v;
  size_t k_batch; /* bytes between batches */
  size_t v_batch;
  const mllm_view *mask; /* [batch or 1, S] i64, bool, u8 or i32, or absent: 0 = excluded */
  const mllm_view *bias; /* f32, broadcast to [batch, heads, T, S], or absent */
  size_t batch, tokens, keys, heads, kv_heads, dim, v_dim;
  size_t first, count; /* queries that read alike: set by mllm_attention_run */
  float scale;
  bool causal;
  size_t window; /* 0: none */
} mllm_attention;

/* Checks mask, bias and params, then runs over the context's threads. */
mllm_status mllm_attention_run(const mllm_call *call, mllm_attention *attention);

/* Whether pages may have to be decoded before they are read. */
bool mllm_kv_needs_room(const mllm_kv_view *view);

/* Rows of head `head` from token `token` on, within one page; *count of them, at most `limit`, and
 * at most MLLM_KV_ROOM of those that are no floats. Those that cannot be read as they are stored
 * are decoded into room[MLLM_KV_ROOM, head_dim]. */
mllm_kv_stored mllm_kv_stored_rows(const mllm_kv_view *view, size_t head, size_t token,
                                   size_t limit, float *room, size_t *count);

/* The same rows as floats. */
const float *mllm_kv_rows(const mllm_kv_view *view, size_t head, size_t token, size_t limit,
                          float *room, size_t *count);

/* Which of the keys first.. (count of them) the mask excludes; false where it excludes none. */
bool mllm_attention_excluded(const mllm_attention *attention, size_t batch, size_t first,
                             size_t count, bool *excluded);

/* Adds bias, causality, window and excluded[count] (or NULL) to scores[count] of keys first.. for
 * query t. */
void mllm_attention_mask(const mllm_attention *attention, float *scores, const bool *excluded,
                         size_t batch, size_t head, size_t t, size_t first, size_t count);

/* y[v_dim] of a query that sees no key: the mean of all values, as equal scores would give; 0 where
 * there are none. v is the batch's own view, room is [MLLM_KV_ROOM, v_dim]. */
void mllm_attention_mean(const mllm_attention *attention, const mllm_kv_view *v, size_t kv_head,
                         float *room, float *y);

/* Keys that query t may see: [*first, *limit). */
void mllm_attention_range(const mllm_attention *attention, size_t t, size_t *first, size_t *limit);

/* The first key that is read for a query that may see those from `first` on: 4-bit keys are made of
 * whole sub-blocks. */
size_t mllm_attention_start(const mllm_attention *attention, size_t first);

/* Heads are small enough for the tiles to lie in scratch. */
bool mllm_attention_fits_tiles(const mllm_attention *attention);

/* Items batch * queries * heads; those of a kv head that a thread has one behind another share the
 * reading of its rows. */
void mllm_attention_rows(mllm_context *context, const mllm_attention *attention);

/* Items batch * kv_heads * blocks of query rows, through packed tiles. */
void mllm_attention_tiles(mllm_context *context, const mllm_attention *attention);

#endif /* MLLM_ATTENTION_H */

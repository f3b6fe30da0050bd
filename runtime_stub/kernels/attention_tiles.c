/* attention_tiles.c - attention of many queries: tiles of scores with a running softmax.
 *
 * An item is a block of query rows of one kv head; the rows of all heads that share it stand
 * together, so that each stretch of keys is packed once for all of them. Scores never leave this
 * thread's scratch. */
#include <math.h>

#include "attention.h"

enum { ROWS = 96, KEYS = MLLM_A_STRIDE };

/* This thread's scratch, cut up. */
typedef struct buffers {
  float *q;       /* [rows, dim], scaled, then packed in tiles of [dim, tile_rows] */
  float *rows;    /* [tile_rows, dim] queries side by side */
  float *k;       /* [KEYS / 16, dim, 16] */
  float *v;       /* [KEYS, v_wide] where v cannot be read in place */
  float *k_room;  /* [MLLM_KV_ROOM, dim] and */
  float *v_room;  /* [MLLM_KV_ROOM, v_dim] where rows are decoded */
  float *scores;  /* [rows, KEYS] */
  float *out;     /* [rows, v_dim] */
  float *largest; /* [rows] */
  float *total;   /* [rows] */
} buffers;

typedef struct job {
  const mllm_attention *a;
  size_t group;      /* heads that share a kv head */
  size_t all_rows;   /* queries * group */
  size_t block_rows; /* of an item */
  size_t blocks;     /* of a kv head */
  size_t v_wide;     /* v_dim rounded up to panels */
} job;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static size_t floats_needed(const mllm_attention *a, size_t rows) {
  const size_t v_wide = round_up(a->v_dim, MLLM_PANEL);
  const size_t room = mllm_kv_needs_room(&a->k) ? MLLM_KV_ROOM * (a->dim + a->v_dim) : 0;
  return room + rows * a->dim + MLLM_TILE_ROWS * a->dim + KEYS * a->dim + KEYS * v_wide + rows * KEYS +
         rows * a->v_dim + 2 * rows;
}

static buffers cut(const job *j, float *scratch) {
  const mllm_attention *a = j->a;
  buffers b;
  b.q = scratch;
  b.rows = b.q + j->block_rows * a->dim;
  b.k = b.rows + MLLM_TILE_ROWS * a->dim;
  b.v = b.k + KEYS * a->dim;
  b.scores = b.v + KEYS * j->v_wide;
  b.out = b.scores + j->block_rows * KEYS;
  b.largest = b.out + j->block_rows * a->v_dim;
  b.total = b.largest + j->block_rows;
  b.k_room = b.total + j->block_rows;
  b.v_room = b.k_room + MLLM_KV_ROOM * a->dim;
  return b;
}

/* Query row r of a kv head: its token and head. */
static void place_of(const job *j, size_t kv_head, size_t r, size_t *t, size_t *head) {
  *t = j->a->first + r / j->group;
  *head = kv_head * j->group + r % j->group;
}

static void pack_queries(const job *j, const buffers *b, size_t batch, size_t kv_head, size_t row,
                         size_t rows) {
  const mllm_attention *a = j->a;
  const mllm_gemm_ops *ops = a->ops->gemm;
  for (size_t r = 0; r < rows; r += ops->tile_rows) {
    const size_t count = smaller(ops->tile_rows, rows - r);
    for (size_t i = 0; i < count; i++) {
      size_t t = 0;
      size_t head = 0;
      place_of(j, kv_head, row + r + i, &t, &head);
      const float *q = a->q + ((batch * a->tokens + t) * a->heads + head) * a->dim;
      memcpy(b->rows + i * a->dim, q, a->dim * sizeof(float));
    }
    ops->pack_rows(b->q + r * a->dim, b->rows, a->dim, count, a->dim, a->scale);
  }
}

/* scores[rows, KEYS] = q k^T for count keys; columns up to the panel's end are computed too. */
static void score(const job *j, const buffers *b, size_t rows, const float *keys, size_t stride,
                  size_t count) {
  const mllm_attention *a = j->a;
  const mllm_gemm_ops *ops = a->ops->gemm;
  ops->pack_panels(b->k, keys, stride, count, a->dim);
  const size_t columns = round_up(count, MLLM_PANEL);
  mllm_tile tile = {.depth = a->dim,
                    .row_stride = MLLM_PANEL,
                    .panel_stride = a->dim * MLLM_PANEL,
                    .c_stride = KEYS};
  for (size_t c = 0; c < columns; c += ops->tile_columns) {
    tile.columns = smaller(ops->tile_columns, columns - c);
    tile.b = b->k + c * a->dim;
    for (size_t r = 0; r < rows; r += ops->tile_rows) {
      tile.rows = smaller(ops->tile_rows, rows - r);
      tile.a = b->q + r * a->dim;
      tile.c = b->scores + r * KEYS + c;
      ops->tile(&tile);
    }
  }
}

/* scores become weights; what was summed before shrinks by the growth of the largest. */
static void soften_row(const job *j, const buffers *b, size_t r, size_t count) {
  const mllm_row_ops *ops = j->a->ops->rows;
  float *scores = b->scores + r * KEYS;
  const float found = ops->max(scores, count);
  if (found == -INFINITY) {
    memset(scores, 0, count * sizeof(float));
    return;
  }
  if (found > b->largest[r] || found != found) {
    const float decay = expf(b->largest[r] - found);
    ops->scale(b->out + r * j->a->v_dim, decay, j->a->v_dim);
    b->total[r] *= decay;
    b->largest[r] = found;
  }
  b->total[r] += ops->exp_sum(scores, b->largest[r], count);
}

/* out += weights v */
static void add_values(const job *j, const buffers *b, size_t rows, const float *values,
                       size_t stride, size_t count) {
  const mllm_gemm_ops *ops = j->a->ops->gemm;
  const size_t v_dim = j->a->v_dim;
  if (j->v_wide != v_dim) {
    for (size_t i = 0; i < count; i++) {
      memcpy(b->v + i * j->v_wide, values + i * stride, v_dim * sizeof(float));
      memset(b->v + i * j->v_wide + v_dim, 0, (j->v_wide - v_dim) * sizeof(float));
    }
    values = b->v;
    stride = j->v_wide;
  }
  mllm_tile tile = {.depth = count,
                    .a_is_rows = true,
                    .row_stride = stride,
                    .panel_stride = MLLM_PANEL,
                    .c_stride = v_dim,
                    .start = MLLM_START_C};
  for (size_t r = 0; r < rows; r += ops->tile_rows) {
    tile.rows = smaller(ops->tile_rows, rows - r);
    tile.a = b->scores + r * KEYS;
    for (size_t c = 0; c < v_dim; c += ops->tile_columns) {
      tile.columns = smaller(ops->tile_columns, v_dim - c);
      tile.b = values + c;
      tile.c = b->out + r * v_dim + c;
      ops->tile(&tile);
    }
  }
}

static void write_rows(const job *j, const buffers *b, const mllm_kv_view *v, size_t batch,
                       size_t kv_head, size_t row, size_t rows) {
  const mllm_attention *a = j->a;
  for (size_t r = 0; r < rows; r++) {
    size_t t = 0;
    size_t head = 0;
    place_of(j, kv_head, row + r, &t, &head);
    float *out = b->out + r * a->v_dim;
    float *y = a->y + ((batch * a->tokens + t) * a->heads + head) * a->v_dim;
    if (b->total[r] == 0.0F) {
      mllm_attention_mean(a, v, kv_head, b->v_room, y);
      continue;
    }
    a->ops->rows->scale(out, 1.0F / b->total[r], a->v_dim);
    memcpy(y, out, a->v_dim * sizeof(float));
  }
}

static void attend_block(const job *j, size_t item, float *scratch) {
  const mllm_attention *a = j->a;
  const buffers b = cut(j, scratch);
  const size_t row = item % j->blocks * j->block_rows;
  const size_t kv_head = item / j->blocks % a->kv_heads;
  const size_t batch = item / j->blocks / a->kv_heads;
  const size_t rows = smaller(j->block_rows, j->all_rows - row);
  mllm_kv_view k = a->k;
  mllm_kv_view v = a->v;
  k.base += batch * a->k_batch;
  v.base += batch * a->v_batch;
  pack_queries(j, &b, batch, kv_head, row, rows);
  memset(b.out, 0, rows * a->v_dim * sizeof(float));
  for (size_t r = 0; r < rows; r++) {
    b.largest[r] = -INFINITY;
    b.total[r] = 0.0F;
  }
  size_t key = 0;
  size_t limit = 0;
  size_t other = 0;
  mllm_attention_range(a, a->first + row / j->group, &key, &other);
  mllm_attention_range(a, a->first + (row + rows - 1) / j->group, &other, &limit);
  key = mllm_attention_start(a, key);
  while (key < limit) {
    size_t count = smaller(limit - key, KEYS);
    const float *keys = mllm_kv_rows(&k, kv_head, key, count, b.k_room, &count);
    const float *values = mllm_kv_rows(&v, kv_head, key, count, b.v_room, &count);
    bool excluded[KEYS];
    const bool any = mllm_attention_excluded(a, batch, key, count, excluded);
    score(j, &b, rows, keys, k.token_stride, count);
    for (size_t r = 0; r < rows; r++) {
      size_t t = 0;
      size_t head = 0;
      place_of(j, kv_head, row + r, &t, &head);
      mllm_attention_mask(a, b.scores + r * KEYS, any ? excluded : NULL, batch, head, t, key,
                          count);
      soften_row(j, &b, r, count);
    }
    add_values(j, &b, rows, values, v.token_stride, count);
    key += count;
  }
  write_rows(j, &b, &v, batch, kv_head, row, rows);
}

static void attend_blocks(void *argument, size_t begin, size_t end, void *scratch) {
  for (size_t item = begin; item < end; item++) attend_block(argument, item, scratch);
}

bool mllm_attention_fits_tiles(const mllm_attention *a) {
  return a->dim > 0 && a->dim < MLLM_SCRATCH_BYTES && a->v_dim < MLLM_SCRATCH_BYTES &&
         floats_needed(a, MLLM_TILE_ROWS) * sizeof(float) <= MLLM_SCRATCH_BYTES;
}

void mllm_attention_tiles(mllm_context *context, const mllm_attention *a) {
  job j = {.a = a,
           .group = a->heads / a->kv_heads,
           .block_rows = ROWS,
           .v_wide = round_up(a->v_dim, MLLM_PANEL)};
  while (floats_needed(a, j.block_rows) * sizeof(float) > MLLM_SCRATCH_BYTES) j.block_rows /= 2;
  j.block_rows = j.block_rows / a->ops->gemm->tile_rows * a->ops->gemm->tile_rows;
  j.all_rows = a->count * j.group;
  j.blocks = (j.all_rows + j.block_rows - 1) / j.block_rows;
  mllm_parallel_for(context->threads, a->batch * a->kv_heads * j.blocks, 1, attend_blocks, &j);
}

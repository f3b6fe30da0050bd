/* Feeding ids: embeddings of text and of an image, side by side, then the language model. */
#include <string.h>

#include "generator.h"
#include "session.h"

/* Embeds ids[0 .. count), which are text, into rows. */
static mllm_status embed_text(mllm_generator *g, const uint32_t *ids, uint32_t count, float *rows,
                              mllm_error *error) {
  for (uint32_t i = 0; i < count; i++) g->memory.ids[i] = (int64_t)ids[i];
  const mllm_tensor input = {.name = g->embed_ids,
                             .data = g->memory.ids,
                             .bytes = count * sizeof *g->memory.ids,
                             .dtype = MLLM_I64,
                             .rank = 2,
                             .dims = {1, count}};
  mllm_tensor output = {.data = rows, .bytes = count * g->prompt.width * sizeof(float)};
  return mllm_run(g->session, g->embed, &input, 1, &output, 1, error);
}

/* Image features lie in their rows already, unless the prompt shows the image a second time. */
static void copy_features(mllm_generator *g, const uint32_t *ids, uint32_t count, float *rows) {
  const float *features = g->features.data;
  const size_t width = g->prompt.width;
  for (uint32_t i = 0; i < count; i++) {
    const float *from = features + (ids[i] & ~MLLM_FEATURE_BIT) * width;
    if (rows + i * width == from) continue;
    memcpy(rows + i * width, from, width * sizeof(float));
    g->session->counters.copied_bytes += width * sizeof(float);
  }
}

/* Each stretch of text, and of features between, into the rows of the embeddings. */
static mllm_status embed_ids(mllm_generator *g, const uint32_t *ids, uint32_t count, float *rows,
                             mllm_error *error) {
  for (uint32_t at = 0, end = 0; at < count; at = end) {
    const bool features = (ids[at] & MLLM_FEATURE_BIT) != 0;
    while (end < count && ((ids[end] & MLLM_FEATURE_BIT) != 0) == features) end++;
    float *here = rows + at * (size_t)g->prompt.width;
    if (features) {
      copy_features(g, ids + at, end - at, here);
      continue;
    }
    const mllm_status status = embed_text(g, ids + at, end - at, here, error);
    if (status != MLLM_OK) return status;
  }
  return MLLM_OK;
}

mllm_status mllm_embed_prompt(mllm_generator *g, mllm_error *error) {
  const uint32_t chunk = g->prompt.chunk;
  mllm_status status = MLLM_OK;
  if (g->prompt.width == 0) return MLLM_OK;
  for (uint32_t at = 0; status == MLLM_OK && at < g->n_ids; at += chunk) {
    const uint32_t left = g->n_ids - at;
    status = embed_ids(g, g->ids + at, left < chunk ? left : chunk,
                       g->memory.embeddings + at * (size_t)g->prompt.width, error);
  }
  g->is_embedded = status == MLLM_OK;
  return status;
}

mllm_status mllm_feed_ids(mllm_generator *g, const mllm_feed *feed, const uint32_t *ids,
                          uint32_t count, uint32_t row, mllm_error *error) {
  mllm_status status = MLLM_OK;
  if (feed->width > 0) {
    g->memory.rows = g->memory.embeddings + row * (size_t)feed->width;
    if (g->is_ready || !g->is_embedded) status = embed_ids(g, ids, count, g->memory.rows, error);
  } else {
    for (uint32_t i = 0; i < count; i++) g->memory.ids[i] = (int64_t)ids[i];
  }
  if (status == MLLM_OK)
    status = mllm_feed_run(feed, g->session, &g->memory, count, g->length, &g->logits, error);
  if (status == MLLM_OK) g->length += count;
  return status;
}

/* generate_reuse.c - prompts that begin with what another conversation of the pool has read. */
#include "crypto.h"
#include "generator.h"
#include "session.h"

/* Tokens of which whole multiples are taken over: chunks, so that the rest is read in the chunks in
 * which it would be read alone and gives the same numbers to the bit; and pages, so that nobody has
 * to copy one to write behind it. 0: chunks and pages do not fit. */
static uint32_t unit_of(const mllm_generator *g) {
  const uint32_t page = mllm_model_cache_info(g->model, (uint32_t)g->prompt.cache).page_tokens;
  const uint32_t chunk = g->prompt.chunk;
  if (chunk % page == 0) return chunk;
  return page % chunk == 0 ? page : 0;
}

void mllm_reuse_identify(mllm_generator *g, const mllm_prompt *prompt) {
  if (g->cache == NULL || !g->reuses) return;
  const mllm_image_config *c = &g->config.image;
  const size_t bytes = (size_t)3 * c->width * c->height * sizeof *g->media;
  const uint32_t unit = unit_of(g);
  g->reuses = unit > 0 && g->n_ids > unit;
  if (!g->reuses || !mllm_shows(prompt)) return;
  g->reuses = mllm_sha256(g->media, bytes, g->identity); /* which is what the encoder saw */
}

mllm_status mllm_reuse_begin(mllm_generator *g, mllm_error *error) {
  if (!g->reuses) return MLLM_OK;
  const uint32_t unit = unit_of(g), most = (g->n_ids - 1) / unit * unit;
  uint32_t tokens = 0;
  mllm_status status = mllm_cache_adopt(g->cache, g->ids, most, g->identity, &tokens, error);
  tokens -= tokens % unit;
  if (status == MLLM_OK) status = mllm_cache_set_length(g->cache, tokens, error);
  if (status != MLLM_OK) return status;
  g->n_read = g->length = g->statistics.reused = tokens;
  return MLLM_OK;
}

void mllm_reuse_offer(mllm_generator *g) {
  if (!g->reuses) return;
  const uint32_t unit = unit_of(g);
  (void)mllm_cache_publish(g->cache, g->ids, g->n_read / unit * unit, g->identity, NULL);
}

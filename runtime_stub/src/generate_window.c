/* generate_window.c - an answer that goes on when the cache is full: a window of tokens, and sinks. */
#include <string.h>

#include "generator.h"
#include "session.h"
#include "status.h"

enum { LEAST_PAGES = 3 /* the first, one to forget, and one that stays */ };

static uint32_t page_tokens(const mllm_generator *g) {
  return mllm_model_cache_info(g->model, (uint32_t)g->prompt.cache).page_tokens;
}

mllm_status mllm_window_open(mllm_generator *g, const mllm_generate_options *options,
                             mllm_error *error) {
  g->window = 0;
  if (options == NULL || options->window == 0) return MLLM_OK;
  if (g->prompt.cache < 0 || g->model->turns[g->prompt.cache] == NULL || options->draft != NULL)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_WINDOW, "%s",
                     options->draft != NULL ? "a draft model keeps no window"
                                            : "no rotary embedding turns what this model caches");
  const uint32_t least = LEAST_PAGES * page_tokens(g);
  if (options->window < least || g->capacity < least)
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_WINDOW,
                     "a window of %u tokens in a cache of %u: both are %u at least",
                     options->window, g->capacity, least);
  g->window = options->window < g->capacity ? options->window : g->capacity;
  return MLLM_OK;
}

mllm_status mllm_window_move(mllm_generator *g, mllm_error *error) {
  if (g->window == 0 || g->length < g->window) return MLLM_OK;
  const uint32_t page = page_tokens(g), pages = (g->length / page - 1) / 2;
  const uint32_t tokens = pages * page;
  const mllm_status status =
      mllm_session_cache_slide(g->session, (uint32_t)g->prompt.cache, pages, error);
  if (status != MLLM_OK) return status;
  g->length -= tokens;
  g->n_ids -= tokens;
  memmove(g->ids + page, g->ids + page + tokens, (g->n_ids - page) * sizeof *g->ids);
  g->statistics.forgotten += tokens;
  return MLLM_OK;
}

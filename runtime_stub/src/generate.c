/* The loop: prompt by chunks, then a token a step. Nothing allocates after mllm_generate_start. */
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "generator.h"
#include "session.h"
#include "status.h"

enum { DEFAULT_NEW_TOKENS = 256 };

static double now(void) {
  struct timespec at;
  if (clock_gettime(CLOCK_MONOTONIC, &at) != 0) return 0.0;
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

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

mllm_status mllm_feed_ids(mllm_generator *g, const mllm_feed *feed, const uint32_t *ids,
                          uint32_t count, uint32_t row, mllm_error *error) {
  mllm_status status = MLLM_OK;
  if (feed->width > 0) {
    g->memory.rows = g->memory.embeddings + row * (size_t)feed->width;
    status = embed_ids(g, ids, count, g->memory.rows, error);
  } else {
    for (uint32_t i = 0; i < count; i++) g->memory.ids[i] = (int64_t)ids[i];
  }
  if (status == MLLM_OK)
    status = mllm_feed_run(feed, g->session, &g->memory, count, g->length, &g->logits, error);
  if (status == MLLM_OK) g->length += count;
  return status;
}

static void set_options(mllm_generator *g, const mllm_generate_options *options) {
  static const mllm_generate_options defaults = {0};
  const mllm_generate_options *o = options == NULL ? &defaults : options;
  const int64_t own = mllm_json_int(g->config.generation, "max_new_tokens", DEFAULT_NEW_TOKENS);
  g->limit =
      o->max_new_tokens > 0 ? o->max_new_tokens : (uint32_t)(own > 0 && own < UINT32_MAX ? own : 1);
  g->sampler.temperature = o->temperature > 0.0 && isfinite(o->temperature) ? o->temperature : 0.0;
  g->sampler.top_p = o->top_p > 0.0 && o->top_p < 1.0 ? o->top_p : 1.0;
  mllm_random_seed(&g->sampler.random, o->seed);
}

/* The decoder that follows an encoder of sound may take its whole prompt in one run only. */
static mllm_status read_prompt(mllm_generator *g, mllm_error *error) {
  for (uint32_t at = 0; at < g->n_ids;) {
    const mllm_feed *feed = at > 0 && g->from_sound ? &g->decode : &g->prompt;
    const uint32_t left = g->n_ids - at, count = left < feed->chunk ? left : feed->chunk;
    const mllm_status status = mllm_feed_ids(g, feed, g->ids + at, count, at, error);
    if (status != MLLM_OK) return status;
    at += count;
  }
  return MLLM_OK;
}

mllm_status mllm_generate_start(mllm_generator *g, const mllm_prompt *prompt,
                                const mllm_generate_options *options, mllm_error *error) {
  static const mllm_prompt nothing = {0};
  if (prompt == NULL) prompt = &nothing;
  mllm_clear(error);
  g->statistics = (mllm_statistics){0};
  g->features = (mllm_tensor){0};
  g->copied_bytes = mllm_session_counters(g->session).copied_bytes;
  g->utf8 = (mllm_utf8_stream){0};
  g->pending = MLLM_NO_TOKEN;
  g->logits = NULL;
  g->length = 0;
  set_options(g, options);
  mllm_status status = MLLM_OK;
  if (g->prompt.cache >= 0)
    status = mllm_session_cache_set_length(g->session, (uint32_t)g->prompt.cache, 0, error);
  const double start = now();
  if (status == MLLM_OK) status = mllm_encode_media(g, prompt, error);
  const double encoded = now();
  const bool has_rows = prompt->rgb != NULL && !g->prompt.reads_features;
  if (status == MLLM_OK) status = mllm_prompt_ids(g, prompt, has_rows, error);
  const double placing = now();
  if (status == MLLM_OK) status = mllm_place_features(g, error);
  const double placed = now();
  if (status == MLLM_OK) status = read_prompt(g, error);
  g->statistics.encode_seconds = encoded - start + (placed - placing);
  g->statistics.prompt_seconds = placing - encoded + (now() - placed);
  g->statistics.prompt_tokens = g->n_ids;
  if (status != MLLM_OK) g->logits = NULL;
  return status;
}

static bool stops(const mllm_generator *g, uint32_t token) {
  const mllm_json_value *list = mllm_json_get(g->config.text, "stop");
  int64_t id;
  for (uint32_t i = 0; (id = mllm_config_id(list, i)) >= 0; i++)
    if (id == token) return true;
  return false;
}

/* The end: what was held back of an incomplete character. */
static mllm_status finish(mllm_generator *g, mllm_finish why, mllm_piece *piece) {
  if (g->statistics.finish == MLLM_FINISH_NONE) g->statistics.finish = (uint32_t)why;
  *piece = (mllm_piece){.token = MLLM_NO_TOKEN, .text = g->text};
  piece->bytes = mllm_utf8_push(&g->utf8, NULL, 0, true, g->text);
  return MLLM_OK;
}

mllm_status mllm_generate_next(mllm_generator *g, mllm_piece *piece, mllm_error *error) {
  mllm_clear(error);
  if (g->logits == NULL)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "no prompt was read");
  if (g->statistics.finish != MLLM_FINISH_NONE) return finish(g, MLLM_FINISH_NONE, piece);
  if (g->statistics.new_tokens >= g->limit) return finish(g, MLLM_FINISH_LENGTH, piece);
  if (g->pending != MLLM_NO_TOKEN) {
    if (g->length >= g->capacity) return finish(g, MLLM_FINISH_FULL, piece);
    const double start = now();
    const mllm_status status = mllm_feed_ids(g, &g->decode, &g->pending, 1, 0, error);
    g->statistics.decode_seconds += now() - start;
    if (status != MLLM_OK) return status;
  }
  const uint32_t token = mllm_sample(&g->sampler, g->logits, g->prompt.vocabulary,
                                     g->statistics.new_tokens == 0 ? 1 : 0);
  if (stops(g, token)) return finish(g, MLLM_FINISH_STOP, piece);
  g->statistics.new_tokens++;
  g->pending = token;
  const char *bytes = "";
  size_t size = 0;
  if (!mllm_tokenizer_is_special(&g->tokenizer, token))
    (void)mllm_tokenizer_bytes(&g->tokenizer, token, &bytes, &size);
  *piece = (mllm_piece){.token = token, .text = g->text};
  piece->bytes = mllm_utf8_push(&g->utf8, bytes, size, false, g->text);
  return MLLM_OK;
}

mllm_status mllm_generate(mllm_generator *g, const mllm_prompt *prompt,
                          const mllm_generate_options *options, mllm_on_piece on_piece,
                          void *context, mllm_error *error) {
  mllm_status status = mllm_generate_start(g, prompt, options, error);
  while (status == MLLM_OK) {
    mllm_piece piece;
    status = mllm_generate_next(g, &piece, error);
    if (status != MLLM_OK) break;
    if (on_piece(context, &piece) != 0 || piece.token == MLLM_NO_TOKEN) break;
  }
  return status;
}

void mllm_generate_statistics(const mllm_generator *g, mllm_statistics *statistics) {
  *statistics = g->statistics;
  statistics->session_bytes = mllm_session_bytes(g->session);
  statistics->copied_bytes =
      mllm_session_counters(g->session).copied_bytes - g->copied_bytes;
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    statistics->peak_bytes = (uint64_t)usage.ru_maxrss * 1024; /* Linux counts in KiB */
}

/* The loop: prompt by chunks, then a token a step. Nothing allocates after mllm_generate_start. */
#include <math.h>
#include <sys/resource.h>
#include <time.h>

#include "generator.h"
#include "mllm_devices.h"
#include "status.h"

enum { DEFAULT_NEW_TOKENS = 256 };

static double now(void) {
  struct timespec at;
  if (clock_gettime(CLOCK_MONOTONIC, &at) != 0) return 0.0;
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

void mllm_set_options(mllm_generator *g, const mllm_generate_options *options) {
  static const mllm_generate_options defaults = {0};
  const mllm_generate_options *o = options == NULL ? &defaults : options;
  const int64_t own = mllm_json_int(g->config.generation, "max_new_tokens", DEFAULT_NEW_TOKENS);
  g->limit =
      o->max_new_tokens > 0 ? o->max_new_tokens : (uint32_t)(own > 0 && own < UINT32_MAX ? own : 1);
  g->sampler.temperature = o->temperature > 0.0 && isfinite(o->temperature) ? o->temperature : 0.0;
  g->sampler.top_p = o->top_p > 0.0 && o->top_p < 1.0 ? o->top_p : 1.0;
  mllm_random_seed(&g->sampler.random, o->seed);
}

mllm_status mllm_take_turn(mllm_generator *g, mllm_error *error) {
  if (!g->takes_turns) return MLLM_OK;
  return mllm_session_use_cache(g->session, (uint32_t)g->prompt.cache, g->cache, error);
}

static uint64_t copied(const mllm_generator *g) {
  return mllm_session_counters(g->session).copied_bytes;
}

/* Pixels or sound to features, the prompt to ids, features to their rows among them. */
mllm_status mllm_generate_prepare(mllm_generator *g, const mllm_prompt *prompt,
                                  mllm_error *error) {
  const double start = now();
  const uint64_t before = copied(g);
  mllm_status status = mllm_encode_media(g, prompt, error);
  const double encoded = now();
  const bool has_rows = mllm_shows(prompt) && !g->prompt.reads_features;
  if (status == MLLM_OK) status = mllm_prompt_ids(g, prompt, has_rows, error);
  const double placing = now();
  if (status == MLLM_OK) status = mllm_place_features(g, error);
  if (status == MLLM_OK) mllm_reuse_identify(g, prompt);
  g->statistics.encode_seconds = encoded - start + (now() - placing);
  g->statistics.prompt_seconds = placing - encoded;
  g->statistics.prompt_tokens = g->n_ids;
  g->statistics.copied_bytes += copied(g) - before;
  return status;
}

mllm_status mllm_generate_open(mllm_generator *g, const mllm_generate_options *options,
                               mllm_error *error) {
  mllm_clear(error);
  g->statistics = (mllm_statistics){0};
  g->features = (mllm_tensor){0};
  g->utf8 = (mllm_utf8_stream){0};
  g->n_decided = g->n_given = 0;
  g->is_ready = g->is_embedded = false;
  g->length = g->n_read = 0;
  mllm_set_options(g, options);
  mllm_status status = mllm_take_turn(g, error);
  if (status == MLLM_OK) status = mllm_speculation_start(g, options, error);
  if (status == MLLM_OK) status = mllm_window_open(g, options, error);
  if (status == MLLM_OK && g->prompt.cache >= 0)
    status = mllm_session_cache_set_length(g->session, (uint32_t)g->prompt.cache, 0, error);
  return status;
}

/* The decoder that follows an encoder of sound may take its whole prompt in one run only. */
mllm_status mllm_generate_read(mllm_generator *g, mllm_error *error) {
  const double start = now();
  const uint64_t before = copied(g);
  mllm_status status = mllm_take_turn(g, error);
  if (status == MLLM_OK && g->n_read == 0) status = mllm_reuse_begin(g, error);
  const uint32_t at = g->n_read, left = g->n_ids - at;
  const mllm_feed *feed = at > 0 && g->from_sound ? &g->decode : &g->prompt;
  const uint32_t count = left < feed->chunk ? left : feed->chunk;
  if (status == MLLM_OK) status = mllm_feed_ids(g, feed, g->ids + at, count, at, error);
  if (status != MLLM_OK) return status;
  g->n_read += count;
  mllm_reuse_offer(g);
  if (g->n_read == g->n_ids) {
    mllm_speculation_hear(g);
    mllm_decide(g, mllm_sample(&g->sampler, g->logits, g->prompt.vocabulary, 1));
    g->is_ready = true;
  }
  g->statistics.prompt_seconds += now() - start;
  g->statistics.copied_bytes += copied(g) - before;
  return MLLM_OK;
}

mllm_status mllm_generate_start(mllm_generator *g, const mllm_prompt *prompt,
                                const mllm_generate_options *options, mllm_error *error) {
  static const mllm_prompt nothing = {0};
  mllm_status status = mllm_generate_open(g, options, error);
  if (status == MLLM_OK)
    status = mllm_generate_prepare(g, prompt == NULL ? &nothing : prompt, error);
  while (status == MLLM_OK && !g->is_ready) status = mllm_generate_read(g, error);
  return status;
}

void mllm_decide(mllm_generator *g, uint32_t token) {
  g->decided[g->n_decided++] = token;
  g->pending = token;
  if (g->n_ids <= g->capacity) g->ids[g->n_ids++] = token;
}

mllm_status mllm_decode_one(mllm_generator *g, mllm_error *error) {
  const uint32_t pending = g->pending;
  const mllm_status status = mllm_feed_ids(g, &g->decode, &pending, 1, 0, error);
  if (status == MLLM_OK)
    mllm_decide(g, mllm_sample(&g->sampler, g->logits, g->prompt.vocabulary, 0));
  return status;
}

/* Decides one token or more, right behind the run that gave the logits. */
static mllm_status decide_more(mllm_generator *g, mllm_error *error) {
  const double start = now();
  const uint64_t before = copied(g);
  g->n_decided = g->n_given = 0;
  mllm_status status = mllm_take_turn(g, error);
  if (status == MLLM_OK) status = mllm_window_move(g, error);
  if (status == MLLM_OK)
    status = g->speculation.most > 0 ? mllm_speculate(g, error) : mllm_decode_one(g, error);
  g->statistics.decode_seconds += now() - start;
  g->statistics.copied_bytes += copied(g) - before;
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
  if (!g->is_ready)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "no prompt was read");
  if (g->statistics.finish != MLLM_FINISH_NONE) return finish(g, MLLM_FINISH_NONE, piece);
  if (g->statistics.new_tokens >= g->limit) return finish(g, MLLM_FINISH_LENGTH, piece);
  if (g->n_given == g->n_decided) {
    if (g->length >= g->capacity && g->window == 0) return finish(g, MLLM_FINISH_FULL, piece);
    const mllm_status status = decide_more(g, error);
    if (status != MLLM_OK) return status;
  }
  const uint32_t token = g->decided[g->n_given++];
  if (stops(g, token)) return finish(g, MLLM_FINISH_STOP, piece);
  g->statistics.new_tokens++;
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
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    statistics->peak_bytes = (uint64_t)usage.ru_maxrss * 1024; /* Linux counts in KiB */
}

#include "speculate.h"

#include <stdlib.h>
#include <string.h>

#include "generator.h"
#include "session.h"
#include "status.h"

enum { LONGEST = 3 };

uint32_t mllm_look_up(const uint32_t *ids, uint32_t count, uint32_t most, uint32_t *drafts) {
  for (uint32_t length = LONGEST; length > 0; length--) {
    if (count <= length) continue;
    const uint32_t *end = ids + count - length;
    for (uint32_t at = count - length; at-- > 0;) {
      if (memcmp(ids + at, end, length * sizeof *ids) != 0) continue;
      uint32_t found = 0;
      for (uint32_t i = at + length; i < count && found < most; i++) {
        if ((ids[i] & MLLM_FEATURE_BIT) != 0) break;
        drafts[found++] = ids[i];
      }
      if (found > 0) return found;
    }
  }
  return 0;
}

static mllm_status refuse(mllm_error *error, const char *why) {
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_DRAFTS, "%s", why);
}

/* An entry over the same cache whose logits are those of all tokens. */
static mllm_status find_entry(mllm_generator *g, mllm_error *error) {
  mllm_feed *feed = &g->speculation.verify;
  if (feed->tokens != NULL) return MLLM_OK;
  const uint32_t entry = mllm_entry_of_role(g->model, "language-model");
  if (entry == MLLM_NO_TOKEN || g->prompt.cache < 0)
    return refuse(error, "no entry gives the logits of several tokens over a cache");
  const mllm_status status = mllm_feed_make(feed, g->model, entry, &g->memory.past, error);
  if (status == MLLM_OK && feed->cache == g->prompt.cache && feed->chunk > 1 &&
      feed->width == g->prompt.width && feed->vocabulary == g->prompt.vocabulary)
    return MLLM_OK;
  mllm_feed_free(feed);
  if (status != MLLM_OK) return status;
  return refuse(error, "the entry for several tokens is not that of the model's own cache");
}

static bool same_tokens(const mllm_tokenizer *a, const mllm_tokenizer *b) {
  if (a->n_tokens != b->n_tokens) return false;
  for (uint32_t id = 0; id < a->n_tokens; id++) {
    const char *left = "", *right = "";
    size_t n_left = 0, n_right = 0;
    (void)mllm_tokenizer_bytes(a, id, &left, &n_left);
    (void)mllm_tokenizer_bytes(b, id, &right, &n_right);
    if (n_left != n_right || memcmp(left, right, n_left) != 0) return false;
  }
  return true;
}

static mllm_status start_draft(mllm_generator *g, mllm_generator *draft, mllm_error *error) {
  if (draft->session == g->session || draft->prompt.cache < 0 || draft->from_sound ||
      draft->prompt.reads_features)
    return refuse(error, "the draft is no language model with a session of its own");
  if (draft->prompt.vocabulary != g->prompt.vocabulary ||
      !same_tokens(&g->tokenizer, &draft->tokenizer))
    return refuse(error, "the draft has another tokenizer");
  draft->is_ready = false;
  draft->n_ids = draft->length = 0;
  draft->sampler.temperature = g->sampler.temperature;
  draft->sampler.top_p = g->sampler.top_p;
  return mllm_session_cache_set_length(draft->session, (uint32_t)draft->prompt.cache, 0, error);
}

mllm_status mllm_speculation_start(mllm_generator *g, const mllm_generate_options *options,
                                   mllm_error *error) {
  mllm_speculation *s = &g->speculation;
  s->most = 0;
  if (options == NULL || options->drafts == 0) return MLLM_OK;
  s->draft = options->draft;
  mllm_status status = find_entry(g, error);
  if (status == MLLM_OK && s->draft != NULL) status = start_draft(g, s->draft, error);
  if (status != MLLM_OK) return status;
  const size_t vocabulary = g->prompt.vocabulary;
  if (s->p == NULL) s->p = calloc(vocabulary, sizeof *s->p);
  if (s->draft != NULL && s->q == NULL) s->q = calloc(vocabulary * MLLM_MOST_DRAFTS, sizeof *s->q);
  if (s->p == NULL || (s->draft != NULL && s->q == NULL))
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for drafts");
  s->most = options->drafts < MLLM_MOST_DRAFTS ? options->drafts : MLLM_MOST_DRAFTS;
  if (s->most > s->verify.chunk - 1) s->most = s->verify.chunk - 1;
  return MLLM_OK;
}

void mllm_speculation_free(mllm_speculation *s) {
  mllm_feed_free(&s->verify);
  free(s->p);
  free(s->q);
}

void mllm_speculation_hear(mllm_generator *g) {
  mllm_generator *draft = g->speculation.draft;
  if (g->speculation.most == 0 || draft == NULL) return;
  for (uint32_t i = 0; i < g->n_ids && draft->n_ids <= draft->capacity; i++)
    if ((g->ids[i] & MLLM_FEATURE_BIT) == 0) draft->ids[draft->n_ids++] = g->ids[i];
}

/* Tokens of the conversation that the draft model has not read yet; its logits follow the last. */
static mllm_status catch_up(mllm_generator *d, mllm_error *error) {
  mllm_status status = MLLM_OK;
  while (status == MLLM_OK && d->length < d->n_ids) {
    const uint32_t left = d->n_ids - d->length;
    const mllm_feed *feed = left == 1 ? &d->decode : &d->prompt;
    status = mllm_feed_ids(d, feed, d->ids + d->length, left < feed->chunk ? left : feed->chunk, 0,
                           error);
  }
  return status;
}

/* Lets the draft model guess; each guess is drawn by the row of q that stands for it. */
static mllm_status guess(mllm_generator *g, uint32_t most, uint32_t *drafts, uint32_t *count,
                         mllm_error *error) {
  mllm_generator *d = g->speculation.draft;
  const size_t vocabulary = g->prompt.vocabulary;
  mllm_status status = MLLM_OK;
  if (d->n_ids + most > d->capacity) return MLLM_OK; /* its own cache is full: no more guesses */
  d->ids[d->n_ids++] = g->pending;
  const uint32_t known = d->n_ids;
  for (*count = 0; status == MLLM_OK && *count < most; (*count)++) {
    status = catch_up(d, error);
    if (status != MLLM_OK) break;
    double *q = g->speculation.q + *count * vocabulary;
    mllm_shares(&d->sampler, d->logits, vocabulary, q);
    drafts[*count] = mllm_draw(&g->sampler.random, q, vocabulary);
    d->ids[d->n_ids++] = drafts[*count];
  }
  d->n_ids = known;
  return status;
}

/* What the conversation now holds of the guesses is what the draft model may keep, too. */
static mllm_status follow(mllm_generator *g, uint32_t accepted, mllm_error *error) {
  mllm_generator *d = g->speculation.draft;
  if (d == NULL) return MLLM_OK;
  for (uint32_t i = 0; i < accepted; i++) d->ids[d->n_ids++] = g->decided[i];
  if (d->length <= d->n_ids) return MLLM_OK;
  d->length = d->n_ids;
  return mllm_session_cache_set_length(d->session, (uint32_t)d->prompt.cache, d->length, error);
}

/* Decides by the logits of the pending token and of each draft behind it; how many were right. */
static uint32_t judge(mllm_generator *g, const uint32_t *drafts, uint32_t count) {
  mllm_speculation *s = &g->speculation;
  const size_t vocabulary = g->prompt.vocabulary;
  const float *rows = g->logits - count * vocabulary;
  for (uint32_t i = 0; i <= count; i++) {
    const float *row = rows + i * vocabulary;
    uint32_t token;
    if (i == count || !(g->sampler.temperature > 0.0)) {
      token = mllm_sample(&g->sampler, row, vocabulary, 0);
    } else {
      const double *q = s->draft == NULL ? NULL : s->q + i * vocabulary;
      mllm_shares(&g->sampler, row, vocabulary, s->p);
      token = mllm_accept(&g->sampler.random, s->p, q, drafts[i], vocabulary);
    }
    mllm_decide(g, token);
    if (i == count || token != drafts[i]) return i;
  }
  return count;
}

mllm_status mllm_speculate(mllm_generator *g, mllm_error *error) {
  mllm_speculation *s = &g->speculation;
  uint32_t ids[MLLM_MOST_DRAFTS + 1] = {g->pending}, count = 0, most = s->most;
  const uint32_t room = g->capacity - g->length - 1, wanted = g->limit - g->statistics.new_tokens;
  if (most > room) most = room;
  if (most > wanted - 1) most = wanted - 1; /* the run itself gives one more */
  mllm_status status = MLLM_OK;
  if (s->draft == NULL)
    count = mllm_look_up(g->ids, g->n_ids, most, ids + 1);
  else if (most > 0)
    status = guess(g, most, ids + 1, &count, error);
  if (status != MLLM_OK) return status;
  if (count == 0) return mllm_decode_one(g, error);
  const uint32_t length = g->length;
  g->session->context->rows_alone = true;
  status = mllm_feed_ids(g, &s->verify, ids, count + 1, 0, error);
  g->session->context->rows_alone = false;
  if (status != MLLM_OK) return status;
  const uint32_t accepted = judge(g, ids + 1, count);
  g->statistics.drafted += count;
  g->statistics.accepted += accepted;
  g->length = length + 1 + accepted;
  status = mllm_session_cache_set_length(g->session, (uint32_t)g->prompt.cache, g->length, error);
  return status == MLLM_OK ? follow(g, accepted, error) : status;
}

/* schedule_admit.c - what a conversation needs, known before anything is computed, and its room. */
#include <stdlib.h>
#include <string.h>

#include "../kv/spill.h"
#include "cache.h"
#include "schedule.h"
#include "status.h"

/* Copies text that the caller need not keep; false: no memory. */
static bool keep_text(mllm_talk *t, int i, const char **text) {
  if (*text == NULL) return true;
  const size_t bytes = strlen(*text) + 1;
  t->text[i] = malloc(bytes);
  if (t->text[i] == NULL) return false;
  memcpy(t->text[i], *text, bytes);
  *text = t->text[i];
  return true;
}

/* Tokens that a conversation will hold at most, known before anything is computed. */
static mllm_status plan(mllm_schedule *s, mllm_talk *t, mllm_error *error) {
  mllm_generator *g = t->generator;
  mllm_set_options(g, &t->options);
  const bool has_image = mllm_shows(&t->prompt);
  mllm_status status = has_image ? mllm_bound_features(g, error) : MLLM_OK;
  if (status == MLLM_OK) status = mllm_prompt_ids(g, &t->prompt, has_image, error);
  if (status != MLLM_OK) return status;
  uint64_t tokens = (uint64_t)g->n_ids + g->limit;
  if (t->options.window > 0) tokens = t->options.window > g->n_ids ? t->options.window : g->n_ids;
  t->need = tokens < g->capacity ? (uint32_t)tokens : g->capacity;
  t->bytes = mllm_cache_bytes(g->model, (uint32_t)g->prompt.cache, t->need);
  if (s->options.cache_bytes == 0 || t->bytes <= s->options.cache_bytes) return MLLM_OK;
  return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_ADMISSION,
                   "%u tokens take %llu bytes of cache, all conversations may take %llu", t->need,
                   (unsigned long long)t->bytes, (unsigned long long)s->options.cache_bytes);
}

static mllm_status fill(mllm_schedule *s, mllm_talk *t, const mllm_prompt *prompt,
                        const mllm_generate_options *options, mllm_error *error) {
  if (prompt != NULL) t->prompt = *prompt;
  if (options != NULL) t->options = *options;
  if (t->options.draft != NULL)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_DRAFTS,
                     "a draft model follows one conversation only");
  if (!keep_text(t, 0, &t->prompt.text) || !keep_text(t, 1, &t->prompt.system))
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a prompt");
  const mllm_status status = mllm_generator_share(s->lender, &t->generator, error);
  return status == MLLM_OK ? plan(s, t, error) : status;
}

mllm_status mllm_schedule_add(mllm_schedule *s, const mllm_prompt *prompt,
                              const mllm_generate_options *options, mllm_priority priority,
                              uint32_t *conversation, mllm_error *error) {
  mllm_clear(error);
  *conversation = MLLM_NO_TOKEN;
  if (priority > MLLM_PRIORITY_LOW)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "there is no priority %u",
                     (unsigned)priority);
  if (s->n_talks == s->room) {
    const uint32_t room = s->room == 0 ? 16 : 2 * s->room;
    mllm_talk *grown = realloc(s->talks, room * sizeof *grown);
    if (grown == NULL)
      return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to schedule");
    s->talks = grown;
    s->room = room;
  }
  mllm_talk made = {.number = s->next_number, .priority = priority};
  s->counters.waiting++;
  const mllm_status status = fill(s, &made, prompt, options, error);
  if (status != MLLM_OK) {
    mllm_talk_free(s, &made);
    return status;
  }
  s->talks[s->n_talks++] = made;
  *conversation = s->next_number++;
  return MLLM_OK;
}

/* The first that waits: the most urgent, and of those the oldest. */
static mllm_talk *first_waiting(mllm_schedule *s) {
  mllm_talk *found = NULL;
  for (uint32_t i = 0; i < s->n_talks; i++) {
    mllm_talk *t = &s->talks[i];
    if (!mllm_talk_runs(t) && (found == NULL || t->priority < found->priority)) found = t;
  }
  return found;
}

static mllm_status take_cache(mllm_schedule *s, mllm_generator *g, uint32_t tokens) {
  if (s->pool != NULL) return mllm_cache_create_in(s->pool, g->model, tokens, &g->cache, NULL);
  return mllm_cache_create(g->model, (uint32_t)g->prompt.cache, tokens, &g->cache, NULL);
}

/* Whether there is room for it beside the others, whose caches take so many bytes. */
static bool has_room(const mllm_schedule *s, const mllm_talk *t, uint64_t bytes, uint32_t running) {
  return running < s->options.conversations &&
         (s->options.cache_bytes == 0 || bytes + t->bytes <= s->options.cache_bytes);
}

/* Whether one may sleep for another: it is less urgent, and no thread prepares it. */
static bool gives_way(const mllm_talk *t, const mllm_talk *other) {
  return mllm_talk_runs(t) && t->state != STATE_PREPARING && t->priority > other->priority;
}

/* The one that does: the least urgent, and of those the youngest. */
static mllm_talk *next_to_sleep(mllm_schedule *s, const mllm_talk *other) {
  mllm_talk *found = NULL;
  for (uint32_t i = 0; i < s->n_talks; i++) {
    mllm_talk *t = &s->talks[i];
    if (gives_way(t, other) && (found == NULL || t->priority >= found->priority)) found = t;
  }
  return found;
}

/* Whether it would have room if all slept that may. */
static bool is_worth_it(const mllm_schedule *s, const mllm_talk *other) {
  uint64_t bytes = s->bytes;
  uint32_t running = s->counters.running;
  for (uint32_t i = 0; i < s->n_talks; i++) {
    const mllm_talk *t = &s->talks[i];
    if (!gives_way(t, other)) continue;
    bytes -= t->bytes;
    running--;
  }
  return has_room(s, other, bytes, running);
}

/* Less urgent conversations sleep until there is room. Pages that they share with others go too:
 * what is left in the pool is what those that run were admitted with. */
static bool make_room(mllm_schedule *s, const mllm_talk *t) {
  if (s->pool == NULL || s->pool->spill == NULL || !is_worth_it(s, t)) return false;
  while (!has_room(s, t, s->bytes, s->counters.running)) {
    mllm_talk *other = next_to_sleep(s, t);
    if (other == NULL ||
        mllm_kv_cache_spill(&other->generator->cache->kv, true, NULL) != MLLM_OK)
      return false;
    other->sleeps = true;
    s->bytes -= other->bytes;
    s->counters.running--;
    s->counters.waiting++;
    s->counters.slept++;
  }
  return true;
}

/* Gives it what it runs with: a cache, or the pages of the one that it has. One whose pages are
 * lost runs too, and says so. */
static bool let_run(mllm_schedule *s, mllm_talk *t) {
  mllm_generator *g = t->generator;
  if (t->sleeps) {
    const mllm_status status = mllm_cache_wake(g->cache, NULL);
    if (status != MLLM_OK && status != MLLM_CORRUPT) return false;
    t->sleeps = false;
    s->counters.woke++;
    return true;
  }
  if (take_cache(s, g, t->need) != MLLM_OK) return false;
  g->capacity = t->need;
  g->reuses = s->pool != NULL;
  return true;
}

void mllm_schedule_admit(mllm_schedule *s) {
  mllm_schedule_counters *c = &s->counters;
  while (c->waiting > 0) {
    mllm_talk *t = first_waiting(s);
    if (!has_room(s, t, s->bytes, c->running) && !make_room(s, t)) return;
    if (!let_run(s, t)) return; /* no memory now: it waits, as for room */
    if (t->due < s->now) t->due = s->now;
    s->bytes += t->bytes;
    c->waiting--;
    c->running++;
    if (s->bytes > c->most_bytes) c->most_bytes = s->bytes;
    if (c->running > c->most) c->most = c->running;
  }
}

/* schedule.c - who is due: the conversation that has had the least of its share. */
#include "mllm_schedule.h"

#include <stdlib.h>
#include <string.h>

#include "../kv/pool.h"
#include "prepare.h"
#include "status.h"

enum { CONVERSATIONS = 16 };

typedef enum state { STATE_NEW, STATE_PREPARING, STATE_PREPARED } state;

/* Without a cache it waits; with one it runs; done, it is only there until the next call. */
typedef struct talk {
  uint32_t number;
  mllm_priority priority;
  uint64_t due; /* turns that it has had, each as long as its priority says */
  uint32_t need; /* tokens of its cache */
  uint64_t bytes;
  state state;
  mllm_generator *generator;
  mllm_prompt prompt;
  char *text[2]; /* copies that the prompt points to */
  mllm_generate_options options;
} talk;

struct mllm_schedule {
  mllm_generator *lender;
  mllm_schedule_options options;
  mllm_preparer *preparer; /* or NULL */
  mllm_kv_pool *pool;      /* the pages of all, where there is a bound; else NULL */
  talk *talks; /* [n_talks] in the order of their numbers */
  uint32_t n_talks;
  uint32_t room;
  uint32_t next_number;
  uint32_t ended; /* the conversation that the next call forgets; MLLM_NO_TOKEN: none */
  uint64_t bytes; /* of the caches that are taken */
  uint64_t now;   /* the due time of the last turn */
  mllm_schedule_counters counters;
};

mllm_status mllm_schedule_create(mllm_generator *generator, const mllm_schedule_options *options,
                                 mllm_schedule **schedule, mllm_error *error) {
  mllm_clear(error);
  *schedule = NULL;
  mllm_generator *probe = NULL;
  const mllm_status status = mllm_generator_share(generator, &probe, error);
  if (status != MLLM_OK) return status;
  mllm_generator_destroy(probe);
  mllm_schedule *made = calloc(1, sizeof *made);
  if (made == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a schedule");
  made->lender = generator;
  if (options != NULL) made->options = *options;
  if (made->options.conversations == 0) made->options.conversations = CONVERSATIONS;
  made->ended = MLLM_NO_TOKEN;
  const uint64_t bytes = made->options.cache_bytes;
  mllm_status made_all = MLLM_OK;
  if (bytes > 0)
    made_all = mllm_kv_pool_create(generator->model, (uint32_t)generator->prompt.cache, bytes,
                                   &made->pool, error);
  if (made_all == MLLM_OK && made->options.prepares)
    made_all = mllm_preparer_create(generator, &made->preparer, error);
  if (made_all == MLLM_OK)
    *schedule = made;
  else
    mllm_schedule_destroy(made);
  return made_all;
}

static void free_talk(mllm_schedule *s, talk *t) {
  if (t->state == STATE_PREPARING) (void)mllm_preparer_take(s->preparer, true, NULL);
  if (t->generator != NULL && t->generator->cache != NULL) {
    s->bytes -= t->bytes;
    s->counters.running--;
  } else {
    s->counters.waiting--;
  }
  mllm_generator_destroy(t->generator);
  free(t->text[0]);
  free(t->text[1]);
}

void mllm_schedule_destroy(mllm_schedule *s) {
  if (s == NULL) return;
  for (uint32_t i = 0; i < s->n_talks; i++) free_talk(s, &s->talks[i]);
  mllm_preparer_destroy(s->preparer);
  (void)mllm_take_turn(s->lender, NULL); /* the session's own cache again */
  (void)mllm_kv_pool_destroy(s->pool, NULL);
  free(s->talks);
  free(s);
}

void mllm_schedule_end(mllm_schedule *s, uint32_t conversation) {
  for (uint32_t i = 0; i < s->n_talks; i++) {
    if (s->talks[i].number != conversation) continue;
    free_talk(s, &s->talks[i]);
    s->n_talks--;
    memmove(s->talks + i, s->talks + i + 1, (s->n_talks - i) * sizeof *s->talks);
    return;
  }
}

/* Copies text that the caller need not keep; false: no memory. */
static bool keep_text(talk *t, int i, const char **text) {
  if (*text == NULL) return true;
  const size_t bytes = strlen(*text) + 1;
  t->text[i] = malloc(bytes);
  if (t->text[i] == NULL) return false;
  memcpy(t->text[i], *text, bytes);
  *text = t->text[i];
  return true;
}

/* Tokens that a conversation will hold at most, known before anything is computed. */
static mllm_status plan(mllm_schedule *s, talk *t, mllm_error *error) {
  mllm_generator *g = t->generator;
  mllm_set_options(g, &t->options);
  const bool has_image = t->prompt.rgb != NULL;
  mllm_status status = has_image ? mllm_bound_features(g, error) : MLLM_OK;
  if (status == MLLM_OK) status = mllm_prompt_ids(g, &t->prompt, has_image, error);
  if (status != MLLM_OK) return status;
  const uint64_t tokens = (uint64_t)g->n_ids + g->limit;
  t->need = tokens < g->capacity ? (uint32_t)tokens : g->capacity;
  t->bytes = mllm_cache_bytes(g->model, (uint32_t)g->prompt.cache, t->need);
  if (s->options.cache_bytes == 0 || t->bytes <= s->options.cache_bytes) return MLLM_OK;
  return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_ADMISSION,
                   "%u tokens take %llu bytes of cache, all conversations may take %llu", t->need,
                   (unsigned long long)t->bytes, (unsigned long long)s->options.cache_bytes);
}

static mllm_status fill(mllm_schedule *s, talk *t, const mllm_prompt *prompt,
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
    talk *grown = realloc(s->talks, room * sizeof *grown);
    if (grown == NULL)
      return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to schedule");
    s->talks = grown;
    s->room = room;
  }
  talk made = {.number = s->next_number, .priority = priority};
  s->counters.waiting++;
  const mllm_status status = fill(s, &made, prompt, options, error);
  if (status != MLLM_OK) {
    free_talk(s, &made);
    return status;
  }
  s->talks[s->n_talks++] = made;
  *conversation = s->next_number++;
  return MLLM_OK;
}

static bool runs(const talk *t) { return t->generator->cache != NULL; }

/* The first that waits: the most urgent, and of those the oldest. */
static talk *first_waiting(mllm_schedule *s) {
  talk *found = NULL;
  for (uint32_t i = 0; i < s->n_talks; i++) {
    talk *t = &s->talks[i];
    if (!runs(t) && (found == NULL || t->priority < found->priority)) found = t;
  }
  return found;
}

static mllm_status take_cache(mllm_schedule *s, mllm_generator *g, uint32_t tokens) {
  if (s->pool != NULL) return mllm_cache_create_in(s->pool, g->model, tokens, &g->cache, NULL);
  return mllm_cache_create(g->model, (uint32_t)g->prompt.cache, tokens, &g->cache, NULL);
}

/* Gaps that old pages leave, where they fall to fewer bits, close by a page a turn. */
static void close_gaps(mllm_schedule *s) {
  if (s->pool == NULL || s->pool->layout.recent == 0) return;
  (void)mllm_kv_defragment_step(s->pool, s->pool->info.page_bytes);
}

/* Gives caches to those that wait, as long as there is room. None is passed over for a smaller one. */
static void admit(mllm_schedule *s) {
  mllm_schedule_counters *c = &s->counters;
  while (c->waiting > 0 && c->running < s->options.conversations) {
    talk *t = first_waiting(s);
    const uint64_t bytes = s->bytes + t->bytes;
    if (s->options.cache_bytes > 0 && bytes > s->options.cache_bytes) return;
    mllm_generator *g = t->generator;
    if (take_cache(s, g, t->need) != MLLM_OK) return; /* no memory now: it waits, as for room */
    g->capacity = t->need;
    t->due = s->now;
    s->bytes = bytes;
    c->waiting--;
    c->running++;
    if (bytes > c->most_bytes) c->most_bytes = bytes;
    if (c->running > c->most) c->most = c->running;
  }
}

/* The one that is due among those that run and are in the state, or in a later one. */
static talk *first_due(mllm_schedule *s, state least, state most) {
  talk *found = NULL;
  for (uint32_t i = 0; i < s->n_talks; i++) {
    talk *t = &s->talks[i];
    if (!runs(t) || t->state < least || t->state > most) continue;
    if (found == NULL || t->due < found->due) found = t;
  }
  return found;
}

/* Takes what the thread has prepared, and lets it begin with the next. Gives the one that could not
 * be prepared, as *error tells, or NULL. */
static talk *prepare_beside(mllm_schedule *s, mllm_error *error) {
  if (s->preparer == NULL) return NULL;
  talk *next = first_due(s, STATE_NEW, STATE_NEW);
  const bool wait = first_due(s, STATE_PREPARED, STATE_PREPARED) == NULL;
  mllm_generator *done = mllm_preparer_take(s->preparer, wait, error);
  for (uint32_t i = 0; done != NULL && i < s->n_talks; i++) {
    talk *t = &s->talks[i];
    if (t->generator != done) continue;
    t->state = STATE_PREPARED;
    s->counters.prepared++;
    s->counters.bubbles += wait;
    if (error->status != MLLM_OK) return t;
  }
  if (next == NULL) return NULL;
  /* a conversation that is being prepared is in the thread's hands: this one waits for the next turn */
  if (first_due(s, STATE_PREPARING, STATE_PREPARING) != NULL) return NULL;
  if (mllm_generate_open(next->generator, &next->options, error) != MLLM_OK) return next;
  next->state = STATE_PREPARING;
  (void)mllm_preparer_offer(s->preparer, next->generator, &next->prompt);
  return NULL;
}

/* One turn: the prompt's media, a chunk of it, or a token; *gave: turn says something. */
static mllm_status take_turn(mllm_schedule *s, talk *t, mllm_turn *turn, bool *gave) {
  mllm_generator *g = t->generator;
  *gave = g->is_ready;
  if (t->state == STATE_NEW) {
    t->state = STATE_PREPARED;
    const mllm_status status = mllm_generate_open(g, &t->options, &turn->error);
    return status == MLLM_OK ? mllm_generate_prepare(g, &t->prompt, &turn->error) : status;
  }
  if (!g->is_ready) {
    s->counters.chunks++;
    return mllm_generate_read(g, &turn->error);
  }
  const mllm_status status = mllm_generate_next(g, &turn->piece, &turn->error);
  s->counters.steps += turn->piece.token != MLLM_NO_TOKEN;
  return status;
}

mllm_status mllm_schedule_next(mllm_schedule *s, mllm_turn *turn, mllm_error *error) {
  mllm_clear(error);
  if (s->ended != MLLM_NO_TOKEN) mllm_schedule_end(s, s->ended);
  s->ended = MLLM_NO_TOKEN;
  for (bool gave = false; !gave;) {
    *turn = (mllm_turn){.conversation = MLLM_NO_TOKEN, .piece = {.token = MLLM_NO_TOKEN}};
    close_gaps(s);
    admit(s);
    talk *failed = prepare_beside(s, &turn->error);
    const state least = s->preparer == NULL ? STATE_NEW : STATE_PREPARED;
    talk *t = failed != NULL ? failed : first_due(s, least, STATE_PREPARED);
    if (t == NULL && s->counters.running > 0) continue; /* it is being prepared */
    if (t == NULL && s->counters.waiting > 0)
      return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                       "no memory for the cache of a conversation");
    if (t == NULL) return MLLM_OK;
    s->now = t->due;
    t->due += 1u << t->priority;
    const mllm_status status =
        failed != NULL ? turn->error.status : take_turn(s, t, turn, &gave);
    turn->conversation = t->number;
    mllm_generate_statistics(t->generator, &turn->statistics);
    if (status != MLLM_OK || (gave && turn->piece.token == MLLM_NO_TOKEN)) s->ended = t->number;
    gave = gave || status != MLLM_OK;
  }
  return MLLM_OK;
}

mllm_schedule_counters mllm_schedule_count(const mllm_schedule *s) { return s->counters; }

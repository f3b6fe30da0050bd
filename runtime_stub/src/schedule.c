/* schedule.c - who is due: the conversation that has had the least of its share. */
#include <stdlib.h>
#include <string.h>

#include "schedule.h"
#include "status.h"

enum { CONVERSATIONS = 16 };

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
  if (made_all == MLLM_OK && made->pool != NULL && made->options.spill_folder != NULL)
    made_all = mllm_kv_pool_set_spill(made->pool, made->options.spill_folder,
                                      made->options.spill_bytes, error);
  if (made_all == MLLM_OK && made->options.prepares)
    made_all = mllm_preparer_create(generator, &made->preparer, error);
  if (made_all == MLLM_OK)
    *schedule = made;
  else
    mllm_schedule_destroy(made);
  return made_all;
}

void mllm_talk_free(mllm_schedule *s, mllm_talk *t) {
  if (t->state == STATE_PREPARING) (void)mllm_preparer_take(s->preparer, true, NULL);
  if (t->generator != NULL && mllm_talk_runs(t)) {
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
  for (uint32_t i = 0; i < s->n_talks; i++) mllm_talk_free(s, &s->talks[i]);
  mllm_preparer_destroy(s->preparer);
  (void)mllm_take_turn(s->lender, NULL); /* the session's own cache again */
  (void)mllm_kv_pool_destroy(s->pool, NULL);
  free(s->talks);
  free(s);
}

void mllm_schedule_end(mllm_schedule *s, uint32_t conversation) {
  for (uint32_t i = 0; i < s->n_talks; i++) {
    if (s->talks[i].number != conversation) continue;
    mllm_talk_free(s, &s->talks[i]);
    s->n_talks--;
    memmove(s->talks + i, s->talks + i + 1, (s->n_talks - i) * sizeof *s->talks);
    return;
  }
}

/* The one that is due among those that run and are in the state, or in a later one. */
static mllm_talk *first_due(mllm_schedule *s, mllm_talk_state least, mllm_talk_state most) {
  mllm_talk *found = NULL;
  for (uint32_t i = 0; i < s->n_talks; i++) {
    mllm_talk *t = &s->talks[i];
    if (!mllm_talk_runs(t) || t->state < least || t->state > most) continue;
    if (found == NULL || t->due < found->due) found = t;
  }
  return found;
}

/* Takes what the thread has prepared, and lets it begin with the next. Gives the one that could not
 * be prepared, as *error tells, or NULL. */
static mllm_talk *prepare_beside(mllm_schedule *s, mllm_error *error) {
  if (s->preparer == NULL) return NULL;
  mllm_talk *next = first_due(s, STATE_NEW, STATE_NEW);
  const bool wait = first_due(s, STATE_PREPARED, STATE_PREPARED) == NULL;
  mllm_generator *done = mllm_preparer_take(s->preparer, wait, error);
  for (uint32_t i = 0; done != NULL && i < s->n_talks; i++) {
    mllm_talk *t = &s->talks[i];
    if (t->generator != done) continue;
    t->state = STATE_PREPARED;
    s->counters.prepared++;
    s->counters.bubbles += wait;
    if (error->status != MLLM_OK) return t;
  }
  if (next == NULL) return NULL;
  /* the thread is busy with another: this one waits for the next turn */
  if (first_due(s, STATE_PREPARING, STATE_PREPARING) != NULL) return NULL;
  if (mllm_generate_open(next->generator, &next->options, error) != MLLM_OK) return next;
  next->state = STATE_PREPARING;
  (void)mllm_preparer_offer(s->preparer, next->generator, &next->prompt);
  return NULL;
}

/* Gaps that old pages leave, where they fall to fewer bits, close by a page a turn. */
static void close_gaps(mllm_schedule *s) {
  if (s->pool == NULL || s->pool->layout.recent == 0) return;
  (void)mllm_kv_defragment_step(s->pool, s->pool->info.page_bytes);
}

/* One turn: the prompt's media, a chunk of it, or a token; *gave: turn says something. */
static mllm_status take_turn(mllm_schedule *s, mllm_talk *t, mllm_turn *turn, bool *gave) {
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
    mllm_schedule_admit(s);
    mllm_talk *failed = prepare_beside(s, &turn->error);
    const mllm_talk_state least = s->preparer == NULL ? STATE_NEW : STATE_PREPARED;
    mllm_talk *t = failed != NULL ? failed : first_due(s, least, STATE_PREPARED);
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

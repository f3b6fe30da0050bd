#include "prepare.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

typedef enum mllm_job { JOB_NONE, JOB_BEGUN, JOB_DONE, JOB_STOP } mllm_job;

struct mllm_preparer {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  mllm_job job;         /* under the lock */
  mllm_generator tools; /* session, pixels and ids of this thread; the rest is lent */
  mllm_generator *generator;
  mllm_generator made; /* the conversation, with the tools of this thread */
  mllm_prompt prompt;
  mllm_error error;
};

static void prepare(mllm_preparer *p) {
  mllm_status status = mllm_generate_prepare(&p->made, &p->prompt, &p->error);
  if (status == MLLM_OK) (void)mllm_embed_prompt(&p->made, &p->error);
}

static void *work(void *argument) {
  mllm_preparer *p = argument;
  (void)pthread_mutex_lock(&p->lock);
  while (p->job != JOB_STOP) {
    if (p->job != JOB_BEGUN) {
      (void)pthread_cond_wait(&p->changed, &p->lock);
      continue;
    }
    (void)pthread_mutex_unlock(&p->lock);
    prepare(p);
    (void)pthread_mutex_lock(&p->lock);
    p->job = JOB_DONE;
    (void)pthread_cond_broadcast(&p->changed);
  }
  (void)pthread_mutex_unlock(&p->lock);
  return NULL;
}

static void free_tools(mllm_preparer *p) {
  mllm_session_destroy(p->tools.session);
  free(p->tools.media);
  free(p->tools.encoded.data);
  free(p->tools.memory.ids);
  free(p);
}

static mllm_status take_tools(mllm_preparer *p, const mllm_generator *lender, mllm_error *error) {
  const mllm_session_options one = {.threads = 1, .max_tokens = 1};
  mllm_generator *tools = &p->tools;
  *tools = *lender;
  tools->session = NULL;
  tools->media = NULL;
  tools->encoded = (mllm_tensor){0};
  tools->takes_turns = false;
  tools->memory.ids = calloc(lender->prompt.chunk, sizeof *tools->memory.ids);
  if (tools->memory.ids == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to prepare prompts");
  const mllm_status status = mllm_session_create(lender->model, &one, &tools->session, error);
  return status == MLLM_OK ? mllm_media_memory(tools, error) : status;
}

mllm_status mllm_preparer_create(const mllm_generator *lender, mllm_preparer **preparer,
                                 mllm_error *error) {
  *preparer = NULL;
  mllm_preparer *p = calloc(1, sizeof *p);
  if (p == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to prepare prompts");
  mllm_status status = take_tools(p, lender, error);
  if (status == MLLM_OK) {
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->changed, NULL);
    if (pthread_create(&p->thread, NULL, work, p) == 0) {
      *preparer = p;
      return MLLM_OK;
    }
    status = mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no thread to prepare prompts");
  }
  free_tools(p);
  return status;
}

void mllm_preparer_destroy(mllm_preparer *p) {
  if (p == NULL) return;
  (void)mllm_preparer_take(p, true, NULL);
  (void)pthread_mutex_lock(&p->lock);
  p->job = JOB_STOP;
  (void)pthread_cond_broadcast(&p->changed);
  (void)pthread_mutex_unlock(&p->lock);
  (void)pthread_join(p->thread, NULL);
  (void)pthread_mutex_destroy(&p->lock);
  (void)pthread_cond_destroy(&p->changed);
  free_tools(p);
}

bool mllm_preparer_offer(mllm_preparer *p, mllm_generator *generator, const mllm_prompt *prompt) {
  (void)pthread_mutex_lock(&p->lock);
  const bool is_free = p->job == JOB_NONE;
  if (is_free) {
    p->generator = generator;
    p->made = *generator;
    p->made.session = p->tools.session;
    p->made.media = p->tools.media;
    p->made.encoded = p->tools.encoded;
    p->made.memory.ids = p->tools.memory.ids;
    p->made.takes_turns = false;
    p->prompt = *prompt;
    p->error = (mllm_error){0};
    p->job = JOB_BEGUN;
    (void)pthread_cond_broadcast(&p->changed);
  }
  (void)pthread_mutex_unlock(&p->lock);
  return is_free;
}

/* What was made is the conversation's; memory that it points to was its own all along. */
static void hand_over(const mllm_preparer *p) {
  mllm_generator *g = p->generator;
  g->n_ids = p->made.n_ids;
  g->image_at = p->made.image_at;
  g->features = p->made.features;
  g->is_embedded = p->made.is_embedded;
  g->reuses = p->made.reuses;
  memcpy(g->identity, p->made.identity, sizeof g->identity);
  g->statistics = p->made.statistics;
}

mllm_generator *mllm_preparer_take(mllm_preparer *p, bool wait, mllm_error *error) {
  mllm_generator *found = NULL;
  (void)pthread_mutex_lock(&p->lock);
  while (wait && p->job == JOB_BEGUN) (void)pthread_cond_wait(&p->changed, &p->lock);
  if (p->job == JOB_DONE) {
    hand_over(p);
    found = p->generator;
    if (error != NULL) *error = p->error;
    p->job = JOB_NONE;
  }
  (void)pthread_mutex_unlock(&p->lock);
  return found;
}

/* session.c - taking and giving back a session's memory; the public face of its caches. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "slide.h"
#include "status.h"

static bool has_slot(const mllm_tensor_record *tensor) {
  return tensor->storage == MLLM_STORAGE_IO && tensor->offset != MLLM_NO_SLOT;
}

static bool take_slots(mllm_session *session) {
  const mllm_program *program = &session->model->program;
  const uint32_t tensors = program->counts[MLLM_SECTION_TENSORS];
  uint32_t count = 0;
  for (uint32_t i = 0; i < tensors; i++) count += has_slot(&program->tensors[i]);
  session->slots = calloc((size_t)count + 1, sizeof *session->slots);
  if (session->slots == NULL) return false;
  for (uint32_t i = 0; i < tensors; i++) {
    if (has_slot(&program->tensors[i])) session->slots[session->n_slots++].tensor = i;
  }
  session->bytes += (count + 1) * sizeof *session->slots;
  return true;
}

/* A device that works in another domain than the processor does gets the arena once, so that a pool
 * which it cannot see is told now. */
static mllm_status check_domains(mllm_session *session, mllm_error *error) {
  const mllm_devices *devices = &session->model->devices;
  for (size_t i = 0; i < devices->n; i++) {
    if (!devices->is_open[i]) continue;
    mllm_error own = {0};
    mllm_status status = mllm_arena_hand(&session->arena, devices->devices[i].memory, &own);
    if (status == MLLM_OK) status = mllm_arena_hand(&session->arena, MLLM_MEMORY_HOST, &own);
    if (status != MLLM_OK)
      return mllm_fail(error, status, MLLM_CODE_UNSEEN, "the device '%s' cannot see the arena: %s",
                       devices->devices[i].name, own.message);
  }
  return MLLM_OK;
}

static bool take_tables(mllm_session *session) {
  const mllm_program *program = &session->model->program;
  const size_t tensors = (size_t)program->counts[MLLM_SECTION_TENSORS] + 1;
  const size_t views = (size_t)program->max_operands + 1;
  const size_t params = (size_t)program->max_params + 1;
  session->bound = calloc(tensors, sizeof *session->bound);
  session->views = calloc(views, sizeof *session->views);
  session->params = calloc(params, sizeof *session->params);
  session->tensors = calloc(views, sizeof *session->tensors);
  session->bytes = program->arena_bytes + tensors * sizeof *session->bound +
                   views * (sizeof *session->views + sizeof *session->tensors) +
                   params * sizeof *session->params;
  if (!mllm_padding_take(&session->padding, program)) return false;
  session->bytes += session->padding.bytes;
  return session->bound != NULL && session->views != NULL && session->params != NULL &&
         session->tensors != NULL && take_slots(session);
}

static mllm_status take_context(mllm_session *session, const mllm_session_options *options,
                                mllm_error *error) {
  const uint32_t count = mllm_model_caches(session->model);
  mllm_cache_info *caches = calloc((size_t)count + 1, sizeof *caches);
  if (caches == NULL) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for %u caches", count);
  }
  for (uint32_t i = 0; i < count; i++) caches[i] = mllm_model_cache_info(session->model, i);
  const mllm_status status =
      mllm_context_create_with(session->model->ops, options->threads, options->max_tokens, caches,
                               count, &session->context, error);
  free(caches);
  if (status != MLLM_OK) return status;
  session->bytes += (uint64_t)mllm_threads_count(session->context->threads) * MLLM_SCRATCH_BYTES;
  for (uint32_t i = 0; i < count; i++) {
    session->bytes += mllm_kv_cache_bytes(&session->context->caches[i]);
  }
  return MLLM_OK;
}

mllm_status mllm_session_create(const mllm_model *model, const mllm_session_options *options,
                                mllm_session **session, mllm_error *error) {
  static const mllm_session_options defaults = {0};
  mllm_clear(error);
  if (model == NULL || session == NULL) {
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "a pointer is NULL");
  }
  *session = NULL;
  mllm_session *made = calloc(1, sizeof *made);
  if (made == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a session");
  made->model = model;
  mllm_status status = mllm_arena_take(&made->arena, options == NULL ? NULL : options->pool,
                                       (size_t)model->program.arena_bytes, error);
  if (status == MLLM_OK) status = check_domains(made, error);
  if (status == MLLM_OK && !take_tables(made))
    status = mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                       "no memory for the tables of a session");
  if (status == MLLM_OK) status = mllm_dims_create(&made->dims, &model->program, error);
  if (status == MLLM_OK) {
    status = take_context(made, options == NULL ? &defaults : options, error);
  }
  if (status != MLLM_OK) {
    mllm_session_destroy(made);
    return status;
  }
  *session = made;
  return MLLM_OK;
}

void mllm_session_destroy(mllm_session *session) {
  if (session == NULL) return;
  mllm_context_destroy(session->context);
  mllm_dims_free(&session->dims);
  mllm_padding_free(&session->padding);
  mllm_arena_give(&session->arena);
  free(session->bound);
  free(session->views);
  free(session->params);
  free(session->tensors);
  free(session->slots);
  free(session);
}

const mllm_model *mllm_session_model(const mllm_session *session) { return session->model; }

uint32_t mllm_session_threads(const mllm_session *session) {
  return mllm_threads_count(session->context->threads);
}

mllm_counters mllm_session_counters(const mllm_session *session) { return session->counters; }

uint64_t mllm_session_bytes(const mllm_session *session) { return session->bytes; }

static mllm_status find_cache(const mllm_session *session, uint32_t cache, mllm_kv_cache **found,
                              mllm_error *error) {
  mllm_clear(error);
  *found = cache < INT32_MAX ? mllm_context_cache(session->context, (int32_t)cache) : NULL;
  if (*found != NULL) return MLLM_OK;
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "the model has no cache %u",
                   cache);
}

uint32_t mllm_session_cache_length(const mllm_session *session, uint32_t cache) {
  mllm_kv_cache *found = NULL;
  return find_cache(session, cache, &found, NULL) == MLLM_OK ? found->length : 0;
}

uint32_t mllm_session_cache_capacity(const mllm_session *session, uint32_t cache) {
  mllm_kv_cache *found = NULL;
  return find_cache(session, cache, &found, NULL) == MLLM_OK ? found->capacity : 0;
}

mllm_status mllm_session_cache_set_length(mllm_session *session, uint32_t cache, uint32_t length,
                                          mllm_error *error) {
  mllm_kv_cache *found = NULL;
  const mllm_status status = find_cache(session, cache, &found, error);
  return status == MLLM_OK ? mllm_kv_cache_set_length(found, length, error) : status;
}

mllm_status mllm_session_cache_slide(mllm_session *session, uint32_t cache, uint32_t pages,
                                     mllm_error *error) {
  mllm_kv_cache *found = NULL;
  const mllm_status status = find_cache(session, cache, &found, error);
  if (status != MLLM_OK) return status;
  const mllm_turn_of_keys *turns = session->model->turns[cache];
  if (turns == NULL)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_WINDOW,
                     "cache '%s' keeps no keys that a rotary embedding turned", found->info.name);
  return mllm_kv_cache_slide(found, pages, turns, error);
}

mllm_status mllm_session_cache_write(mllm_session *session, uint32_t cache, uint32_t layer,
                                     mllm_kv_kind kind, const float *data, uint32_t tokens,
                                     mllm_error *error) {
  mllm_kv_cache *found = NULL;
  const mllm_status status = find_cache(session, cache, &found, error);
  if (status != MLLM_OK) return status;
  return mllm_kv_cache_write(found, layer, (uint32_t)kind, data, tokens, error);
}

mllm_status mllm_session_cache_read(const mllm_session *session, uint32_t cache, uint32_t layer,
                                    mllm_kv_kind kind, float *data, uint32_t tokens,
                                    mllm_error *error) {
  mllm_kv_cache *found = NULL;
  const mllm_status status = find_cache(session, cache, &found, error);
  if (status != MLLM_OK) return status;
  return mllm_kv_cache_read(found, layer, (uint32_t)kind, data, tokens, error);
}

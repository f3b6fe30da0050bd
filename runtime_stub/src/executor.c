/* executor.c - one run of an entry: bind, evaluate dims, execute the stages in order. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "session.h"
#include "status.h"

/* The place of one run's arguments. */
typedef struct run {
  mllm_session *session;
  const mllm_program *program;
  const mllm_entry_record *entry;
  const mllm_tensor *inputs;
  size_t n_inputs;
  mllm_tensor *outputs;
  size_t n_outputs;
  mllm_error *error;
} run;

static const char *name_of(const run *r, uint32_t tensor) {
  return mllm_program_string(r->program, r->program->tensors[tensor].name);
}

/* The tensor id that argument i of `given` stands for among ids[count], or MLLM_NONE. */
static uint32_t identify(const run *r, const mllm_tensor *given, size_t i, const uint32_t *ids,
                         uint32_t count) {
  if (given[i].name == NULL) return i < count ? ids[i] : MLLM_NONE;
  for (uint32_t k = 0; k < count; k++) {
    if (strcmp(name_of(r, ids[k]), given[i].name) == 0) return ids[k];
  }
  return MLLM_NONE;
}

static bool same_dtype(uint32_t a, uint32_t b) {
  const bool bytes = (a == MLLM_U8 || a == MLLM_BOOL) && (b == MLLM_U8 || b == MLLM_BOOL);
  return a == b || bytes;
}

/* Binds the symbols that stand bare in the tensor's dims. */
static mllm_status bind_dims(const run *r, uint32_t id, uint32_t rank, const int64_t *dims) {
  const mllm_tensor_record *tensor = &r->program->tensors[id];
  if (rank != tensor->rank) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "input '%s' has rank %u, not %u", name_of(r, id), tensor->rank, rank);
  }
  char what[96];
  (void)snprintf(what, sizeof what, "input '%.80s'", name_of(r, id));
  for (uint32_t i = 0; i < rank; i++) {
    const int64_t symbol = mllm_dims_bare_symbol(r->program, tensor->dims[i]);
    if (symbol < 0) continue;
    const mllm_status status =
        mllm_dims_bind(&r->session->dims, (uint32_t)symbol, dims[i], what, r->error);
    if (status != MLLM_OK) return status;
  }
  return MLLM_OK;
}

static mllm_status bind_input(const run *r, size_t i) {
  const mllm_tensor *given = &r->inputs[i];
  const uint32_t id =
      identify(r, r->inputs, i, r->program->arg_ids + r->entry->first_input, r->entry->n_inputs);
  if (id == MLLM_NONE) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "no input '%s' (%zu)",
                     given->name == NULL ? "" : given->name, i);
  }
  const mllm_tensor_record *tensor = &r->program->tensors[id];
  if (!same_dtype(given->dtype, tensor->dtype)) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "input '%s' is %s, not %s", name_of(r, id), mllm_dtype_name(tensor->dtype),
                     mllm_dtype_name(given->dtype));
  }
  if (given->data == NULL || (uintptr_t)given->data % mllm_dtype_bytes(tensor->dtype) != 0) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "input '%s' has no data, or it is not aligned", name_of(r, id));
  }
  if (r->session->bound[id] != NULL) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "input '%s' is given twice", name_of(r, id));
  }
  r->session->bound[id] = given->data;
  return bind_dims(r, id, given->rank, given->dims);
}

/* The slot at the tensor's offset that was written last, or NULL. */
static mllm_slot *written_slot(const run *r, uint32_t id) {
  mllm_slot *found = NULL;
  for (uint32_t i = 0; i < r->session->n_slots; i++) {
    mllm_slot *slot = &r->session->slots[i];
    if (r->program->tensors[slot->tensor].offset != r->program->tensors[id].offset) continue;
    if (slot->written > 0 && (found == NULL || slot->written > found->written)) found = slot;
  }
  return found;
}

/* An input that was left out is what an earlier entry wrote to its place. */
static mllm_status bind_missing(const run *r, uint32_t id) {
  const mllm_tensor_record *tensor = &r->program->tensors[id];
  const mllm_slot *slot = tensor->offset == MLLM_NO_SLOT ? NULL : written_slot(r, id);
  if (slot == NULL) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "input '%s' is missing",
                     name_of(r, id));
  }
  return slot->rank == tensor->rank ? bind_dims(r, id, slot->rank, slot->dims) : MLLM_OK;
}

/* Every dim of a given input is what the program computes. */
static mllm_status check_input(const run *r, const mllm_tensor *given, uint32_t id) {
  int64_t shape[MLLM_MAX_RANK];
  uint64_t bytes = 0;
  const mllm_tensor_record *tensor = &r->program->tensors[id];
  const mllm_status status = mllm_dims_shape(&r->session->dims, tensor, shape, &bytes, r->error);
  if (status != MLLM_OK) return status;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (shape[i] == given->dims[i]) continue;
    char text[96] = "";
    (void)mllm_dims_text(r->program, tensor->dims[i], text, sizeof text);
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "input '%s': dimension %u (%s) is %" PRId64 ", not %" PRId64, name_of(r, id),
                     i, text, shape[i], given->dims[i]);
  }
  if (given->bytes < bytes) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "input '%s' has %zu bytes, its dims need %" PRIu64, name_of(r, id),
                     given->bytes, bytes);
  }
  return MLLM_OK;
}

static void forget_bindings(const run *r) {
  const uint32_t *inputs = r->program->arg_ids + r->entry->first_input;
  const uint32_t *outputs = r->program->arg_ids + r->entry->first_output;
  for (uint32_t i = 0; i < r->entry->n_inputs; i++) r->session->bound[inputs[i]] = NULL;
  for (uint32_t i = 0; i < r->entry->n_outputs; i++) r->session->bound[outputs[i]] = NULL;
}

static mllm_status bind_inputs(const run *r) {
  mllm_dims_reset(&r->session->dims);
  mllm_status status = MLLM_OK;
  mllm_kv_cache *cache = mllm_context_cache(r->session->context, r->entry->cache);
  if (cache != NULL) {
    const uint32_t symbol = r->program->caches[r->entry->cache].past_symbol;
    if (symbol != MLLM_NONE) {
      status = mllm_dims_bind(&r->session->dims, symbol, cache->length, "cache", r->error);
    }
  }
  for (size_t i = 0; i < r->n_inputs && status == MLLM_OK; i++) status = bind_input(r, i);
  const uint32_t *ids = r->program->arg_ids + r->entry->first_input;
  for (uint32_t i = 0; i < r->entry->n_inputs && status == MLLM_OK; i++) {
    if (r->session->bound[ids[i]] == NULL) status = bind_missing(r, ids[i]);
  }
  for (size_t i = 0; i < r->n_inputs && status == MLLM_OK; i++) {
    status = check_input(r, &r->inputs[i], identify(r, r->inputs, i, ids, r->entry->n_inputs));
  }
  return status;
}

/* Fills the description of output i; id is its tensor. */
static mllm_status describe_output(const run *r, size_t i, uint32_t *id, uint64_t *bytes) {
  mllm_tensor *out = &r->outputs[i];
  *id =
      identify(r, r->outputs, i, r->program->arg_ids + r->entry->first_output, r->entry->n_outputs);
  if (*id == MLLM_NONE) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "no output '%s' (%zu)",
                     out->name == NULL ? "" : out->name, i);
  }
  const mllm_tensor_record *tensor = &r->program->tensors[*id];
  const mllm_status status = mllm_dims_shape(&r->session->dims, tensor, out->dims, bytes, r->error);
  if (status != MLLM_OK) return status;
  out->dtype = tensor->dtype;
  out->rank = tensor->rank;
  return MLLM_OK;
}

static mllm_status bind_output(const run *r, size_t i) {
  uint32_t id = 0;
  uint64_t bytes = 0;
  mllm_tensor *out = &r->outputs[i];
  const mllm_status status = describe_output(r, i, &id, &bytes);
  if (status != MLLM_OK) return status;
  const mllm_tensor_record *tensor = &r->program->tensors[id];
  if (out->data == NULL) {
    if (tensor->offset == MLLM_NO_SLOT) {
      return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                       "output '%s' has no place in the arena: give it memory", name_of(r, id));
    }
    if (bytes > tensor->max_bytes) {
      return mllm_fail(r->error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                       "output '%s' needs %" PRIu64 " bytes, its plan has %" PRIu64, name_of(r, id),
                       bytes, tensor->max_bytes);
    }
    out->data = r->session->arena.bytes + tensor->offset;
    out->bytes = (size_t)bytes;
    return MLLM_OK;
  }
  if (out->bytes < bytes || (uintptr_t)out->data % mllm_dtype_bytes(tensor->dtype) != 0) {
    return mllm_fail(r->error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                     "output '%s' needs %" PRIu64 " aligned bytes, not %zu", name_of(r, id), bytes,
                     out->bytes);
  }
  out->bytes = (size_t)bytes;
  r->session->bound[id] = out->data;
  return MLLM_OK;
}

/* The operand as the kernel sees it. */
static mllm_status view_operand(const run *r, uint32_t id, mllm_view *view) {
  memset(view, 0, sizeof *view);
  if (id == MLLM_NONE) return MLLM_OK;
  uint64_t bytes = 0;
  const mllm_tensor_record *tensor = &r->program->tensors[id];
  const mllm_status status =
      mllm_dims_shape(&r->session->dims, tensor, view->dims, &bytes, r->error);
  if (status != MLLM_OK) return status;
  view->dtype = tensor->dtype;
  view->rank = tensor->rank;
  view->data = r->session->bound[id];
  if (view->data != NULL) return MLLM_OK;
  if (tensor->storage == MLLM_STORAGE_IO && tensor->offset == MLLM_NO_SLOT) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "'%s' has no place in the arena: give it memory", name_of(r, id));
  }
  if (bytes > tensor->max_bytes) {
    return mllm_fail(r->error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                     "tensor '%s' needs %" PRIu64 " bytes, its plan has %" PRIu64, name_of(r, id),
                     bytes, tensor->max_bytes);
  }
  const unsigned char *base =
      tensor->storage == MLLM_STORAGE_WEIGHT ? r->session->model->weights : r->session->arena.bytes;
  view->data = (void *)(uintptr_t)(base + tensor->offset);
  return MLLM_OK;
}

/* What a stage writes over is no longer what an entry left there. */
static void forget_overwritten(const run *r, uint32_t id) {
  const mllm_tensor_record *tensors = r->program->tensors, *made = &tensors[id];
  if (r->session->bound[id] != NULL) return;
  const uint64_t end = made->offset + made->max_bytes;
  for (uint32_t i = 0; i < r->session->n_slots; i++) {
    mllm_slot *slot = &r->session->slots[i];
    const mllm_tensor_record *kept = &tensors[slot->tensor];
    if (kept->offset < end && made->offset < kept->offset + kept->max_bytes) slot->written = 0;
  }
}

static mllm_status run_stage(const run *r, const mllm_stage_record *stage) {
  mllm_session *session = r->session;
  mllm_status status = MLLM_OK;
  for (uint32_t i = 0; i < stage->n_in + stage->n_out && status == MLLM_OK; i++) {
    status = view_operand(r, r->program->arg_ids[stage->first_arg + i], &session->views[i]);
  }
  const uint8_t *kinds = r->program->param_kinds + stage->first_param;
  for (uint32_t i = 0; i < stage->n_params && status == MLLM_OK; i++) {
    const int64_t param = r->program->params[stage->first_param + i];
    session->params[i] = param;
    if (kinds[i] != MLLM_PARAM_EXPR) continue;
    status = mllm_dims_value(&session->dims, (uint32_t)param, &session->params[i], r->error);
  }
  if (status != MLLM_OK) return status;
  const uint32_t *made = r->program->arg_ids + stage->first_arg + stage->n_in;
  for (uint32_t i = 0; i < stage->n_out; i++) forget_overwritten(r, made[i]);
  const mllm_call call = {
      .context = session->context,
      .in = session->views,
      .out = session->views + stage->n_in,
      .n_in = stage->n_in,
      .n_out = stage->n_out,
      .params = session->params,
      .kinds = kinds,
      .n_params = stage->n_params,
      .cache = r->entry->cache,
      .error = r->error,
      .function = &session->model->devices.calls[stage - r->program->stages],
      .tensors = session->tensors,
      .arena = &session->arena,
  };
  const mllm_device *device = call.function->device;
  status = mllm_arena_hand(&session->arena, device == NULL ? MLLM_MEMORY_HOST : device->memory,
                           r->error);
  if (status == MLLM_OK) status = r->program->functions[stage->kernel](&call);
  if (status != MLLM_OK) return status;
  session->counters.device_calls += device != NULL;
  session->counters.fallback_stages += (stage->flags & MLLM_STAGE_FALLBACK) != 0;
  return MLLM_OK;
}

/* After the last stage the processor has the arena, whatever a device did. */
static mllm_status run_stages(const run *r) {
  const char *entry = mllm_program_string(r->program, r->entry->name);
  mllm_status status = MLLM_OK;
  for (uint32_t i = 0; i < r->entry->n_stages && status == MLLM_OK; i++) {
    const mllm_stage_record *stage = &r->program->stages[r->entry->first_stage + i];
    status = run_stage(r, stage);
    if (status != MLLM_OK)
      mllm_locate(r->error, entry, mllm_program_string(r->program, stage->location));
  }
  mllm_error own = {0};
  const mllm_status back = mllm_arena_hand(&r->session->arena, MLLM_MEMORY_HOST, &own);
  if (status != MLLM_OK || back == MLLM_OK) return status;
  return mllm_fail(r->error, back, MLLM_CODE_ACCESS, "%s", own.message);
}

/* Remembers the shapes of what the entry left in its outputs' default places. */
static void note_slots(const run *r) {
  mllm_session *session = r->session;
  session->runs++;
  const uint32_t *outputs = r->program->arg_ids + r->entry->first_output;
  for (uint32_t i = 0; i < r->entry->n_outputs; i++) {
    const mllm_tensor_record *tensor = &r->program->tensors[outputs[i]];
    if (tensor->offset == MLLM_NO_SLOT || session->bound[outputs[i]] != NULL) continue;
    for (uint32_t k = 0; k < session->n_slots; k++) {
      mllm_slot *slot = &session->slots[k];
      if (slot->tensor != outputs[i]) continue;
      uint64_t bytes = 0;
      slot->rank = tensor->rank;
      (void)mllm_dims_shape(&session->dims, tensor, slot->dims, &bytes, NULL);
      slot->written = session->runs;
    }
  }
}

static mllm_status start(run *r, mllm_session *session, uint32_t entry) {
  mllm_clear(r->error);
  if (session == NULL || entry >= mllm_model_entries(session->model)) {
    return mllm_fail(r->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "the model has no entry %u", entry);
  }
  r->session = session;
  r->program = &session->model->program;
  r->entry = &r->program->entries[entry];
  return MLLM_OK;
}

static mllm_status execute(run *r) {
  mllm_context *context = r->session->context;
  mllm_status status = bind_inputs(r);
  for (size_t i = 0; i < r->n_outputs && status == MLLM_OK; i++) status = bind_output(r, i);
  if (status != MLLM_OK) return status;
  if (r->entry->buckets != 0) return mllm_padded_run(r->session, r->entry, r->error);
  mllm_context_begin_run(context, r->entry->cache);
  status = run_stages(r);
  if (status != MLLM_OK) return status;
  mllm_context_end_run(context, r->entry->cache);
  note_slots(r);
  return MLLM_OK;
}

static mllm_status describe_outputs(run *r) {
  mllm_status status = bind_inputs(r);
  for (size_t i = 0; i < r->n_outputs && status == MLLM_OK; i++) {
    uint32_t id = 0;
    uint64_t bytes = 0;
    status = describe_output(r, i, &id, &bytes);
    r->outputs[i].bytes = (size_t)bytes;
  }
  return status;
}

/* No binding outlives the run: the next one may be of another entry. */
static mllm_status located(run *r, mllm_status (*action)(run *)) {
  mllm_locate(r->error, mllm_program_string(r->program, r->entry->name), NULL);
  const mllm_status status = action(r);
  forget_bindings(r);
  if (status == MLLM_OK) mllm_clear(r->error);
  return status;
}

mllm_status mllm_run(mllm_session *session, uint32_t entry, const mllm_tensor *inputs,
                     size_t n_inputs, mllm_tensor *outputs, size_t n_outputs, mllm_error *error) {
  run r = {.inputs = inputs,
           .n_inputs = n_inputs,
           .outputs = outputs,
           .n_outputs = n_outputs,
           .error = error};
  const mllm_status status = start(&r, session, entry);
  return status == MLLM_OK ? located(&r, execute) : status;
}

mllm_status mllm_run_shapes(mllm_session *session, uint32_t entry, const mllm_tensor *inputs,
                            size_t n_inputs, mllm_tensor *outputs, size_t n_outputs,
                            mllm_error *error) {
  run r = {.inputs = inputs,
           .n_inputs = n_inputs,
           .outputs = outputs,
           .n_outputs = n_outputs,
           .error = error};
  const mllm_status status = start(&r, session, entry);
  return status == MLLM_OK ? located(&r, describe_outputs) : status;
}

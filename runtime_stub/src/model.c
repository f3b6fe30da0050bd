/* model.c - loading a model and answering what is in it. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "caches.h"
#include "dims.h"
#include "status.h"

enum { WEIGHT_ALIGNMENT = 8 };

mllm_status mllm_model_create(const void *program, size_t program_bytes, const void *weights,
                              size_t weight_bytes, const mllm_model_options *options,
                              mllm_model **model, mllm_error *error) {
  return mllm_model_make(program, program_bytes, weights, weight_bytes, options, NULL, NULL, 0,
                         model, error);
}

mllm_status mllm_model_create_on(const void *program, size_t program_bytes, const void *weights,
                                 size_t weight_bytes, const mllm_model_options *options,
                                 const mllm_device *devices, size_t n_devices, mllm_model **model,
                                 mllm_error *error) {
  return mllm_model_make(program, program_bytes, weights, weight_bytes, options, NULL, devices,
                         n_devices, model, error);
}

static mllm_status find_turns(mllm_model *model, const unsigned char *weights, mllm_error *error) {
  const uint32_t caches = mllm_model_caches(model);
  model->turns = calloc((size_t)caches + 1, sizeof *model->turns);
  if (model->turns == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for %u caches", caches);
  mllm_status status = MLLM_OK;
  for (uint32_t i = 0; i < caches && status == MLLM_OK; i++)
    status = mllm_turns_find(&model->program, weights, i, &model->turns[i], error);
  return status;
}

mllm_status mllm_model_make(const void *program, size_t program_bytes, const void *weights,
                            size_t weight_bytes, const mllm_model_options *options,
                            const mllm_bundle *bundle, const mllm_device *devices, size_t n_devices,
                            mllm_model **model, mllm_error *error) {
  mllm_clear(error);
  if (model == NULL || program == NULL || (weights == NULL && weight_bytes > 0)) {
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "a pointer is NULL");
  }
  *model = NULL;
  if (options != NULL && options->abi != MLLM_ABI_VERSION) {
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_VERSION,
                     "the caller's header has ABI %u, this runtime has %d", options->abi,
                     MLLM_ABI_VERSION);
  }
  if ((uintptr_t)weights % WEIGHT_ALIGNMENT != 0) {
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "weights are not aligned to %d bytes", WEIGHT_ALIGNMENT);
  }
  mllm_model *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a model");
  }
  mllm_status status = mllm_choose_ops(options == NULL ? NULL : options->cpu, &made->ops, error);
  if (status == MLLM_OK) {
    status = mllm_program_read(program, program_bytes, &made->program, error);
  }
  if (status == MLLM_OK && made->program.weight_bytes > weight_bytes) {
    status = mllm_fail(error, MLLM_INVALID_PROGRAM, MLLM_CODE_PROGRAM,
                       "the program needs %llu bytes of weights, there are %zu",
                       (unsigned long long)made->program.weight_bytes, weight_bytes);
  }
  if (status == MLLM_OK) status = mllm_caches_read(&made->program, weights, &made->caches, error);
  if (status == MLLM_OK) status = find_turns(made, weights, error);
  if (status == MLLM_OK) {
    status = mllm_devices_open(&made->program, bundle, devices, n_devices, &made->devices, error);
  }
  if (status != MLLM_OK) {
    mllm_model_destroy(made);
    return status;
  }
  made->weights = weights;
  *model = made;
  return MLLM_OK;
}

void mllm_model_destroy(mllm_model *model) {
  if (model == NULL) return;
  mllm_devices_close(&model->devices);
  mllm_caches_free(model->caches, mllm_model_caches(model));
  for (uint32_t i = 0; model->turns != NULL && i < mllm_model_caches(model); i++)
    free(model->turns[i]);
  free(model->turns);
  mllm_program_free(&model->program);
  free(model);
}

const char *mllm_model_cpu(const mllm_model *model) { return model->ops->name; }

uint64_t mllm_model_arena_bytes(const mllm_model *model) { return model->program.arena_bytes; }

uint32_t mllm_model_entries(const mllm_model *model) {
  return model->program.counts[MLLM_SECTION_ENTRIES];
}

uint32_t mllm_model_symbols(const mllm_model *model) {
  return model->program.counts[MLLM_SECTION_SYMBOLS];
}

uint32_t mllm_model_caches(const mllm_model *model) {
  return model->program.counts[MLLM_SECTION_CACHES];
}

int32_t mllm_model_find_entry(const mllm_model *model, const char *name) {
  for (uint32_t i = 0; i < mllm_model_entries(model); i++) {
    const char *candidate = mllm_program_string(&model->program, model->program.entries[i].name);
    if (strcmp(candidate, name) == 0) return (int32_t)i;
  }
  return -1;
}

mllm_status mllm_model_entry(const mllm_model *model, uint32_t entry, mllm_entry_info *info) {
  if (entry >= mllm_model_entries(model)) return MLLM_INVALID_ARGUMENT;
  const mllm_entry_record *record = &model->program.entries[entry];
  *info = (mllm_entry_info){
      .name = mllm_program_string(&model->program, record->name),
      .role = mllm_program_string(&model->program, record->role),
      .inputs = record->n_inputs,
      .outputs = record->n_outputs,
      .stages = record->n_stages,
      .cache = record->cache,
  };
  return MLLM_OK;
}

static void describe(const mllm_program *program, uint32_t id, mllm_tensor_info *info) {
  const mllm_tensor_record *tensor = &program->tensors[id];
  memset(info, 0, sizeof *info);
  info->name = mllm_program_string(program, tensor->name);
  info->dtype = tensor->dtype;
  info->rank = tensor->rank;
  info->max_bytes = tensor->max_bytes;
  info->arena_offset = tensor->offset;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    const uint32_t expr = tensor->dims[i];
    const int64_t symbol = mllm_dims_bare_symbol(program, expr);
    info->exprs[i] = expr;
    info->dims[i] = mllm_dims_constant(program, expr);
    if (symbol >= 0) info->symbols[i] = mllm_program_string(program, program->symbols[symbol].name);
  }
}

mllm_status mllm_model_input(const mllm_model *model, uint32_t entry, uint32_t index,
                             mllm_tensor_info *info) {
  if (entry >= mllm_model_entries(model)) return MLLM_INVALID_ARGUMENT;
  const mllm_entry_record *record = &model->program.entries[entry];
  if (index >= record->n_inputs) return MLLM_INVALID_ARGUMENT;
  describe(&model->program, model->program.arg_ids[record->first_input + index], info);
  return MLLM_OK;
}

mllm_status mllm_model_output(const mllm_model *model, uint32_t entry, uint32_t index,
                              mllm_tensor_info *info) {
  if (entry >= mllm_model_entries(model)) return MLLM_INVALID_ARGUMENT;
  const mllm_entry_record *record = &model->program.entries[entry];
  if (index >= record->n_outputs) return MLLM_INVALID_ARGUMENT;
  describe(&model->program, model->program.arg_ids[record->first_output + index], info);
  return MLLM_OK;
}

mllm_status mllm_model_symbol(const mllm_model *model, uint32_t symbol, mllm_symbol_info *info) {
  if (symbol >= mllm_model_symbols(model)) return MLLM_INVALID_ARGUMENT;
  const mllm_symbol_record *record = &model->program.symbols[symbol];
  info->name = mllm_program_string(&model->program, record->name);
  info->max = record->max;
  return MLLM_OK;
}

mllm_cache_info mllm_model_cache_info(const mllm_model *model, uint32_t cache) {
  return model->caches[cache];
}

mllm_status mllm_model_cache(const mllm_model *model, uint32_t cache, mllm_cache_info *info) {
  if (cache >= mllm_model_caches(model)) return MLLM_INVALID_ARGUMENT;
  *info = model->caches[cache];
  return MLLM_OK;
}

/* Constant dims within max_bytes: what a caller may read. */
static bool shape_of_weight(const mllm_program *program, const mllm_tensor_record *tensor,
                            mllm_tensor *weight) {
  uint64_t bytes = mllm_dtype_bytes(tensor->dtype);
  for (uint32_t i = 0; i < tensor->rank; i++) {
    weight->dims[i] = mllm_dims_constant(program, tensor->dims[i]);
    if (weight->dims[i] < 0) return false;
    if (__builtin_mul_overflow(bytes, (uint64_t)weight->dims[i], &bytes)) return false;
  }
  weight->bytes = (size_t)bytes;
  return bytes <= tensor->max_bytes;
}

mllm_status mllm_model_weight(const mllm_model *model, const char *name, mllm_tensor *weight) {
  const mllm_program *program = &model->program;
  memset(weight, 0, sizeof *weight);
  for (uint32_t i = 0; i < program->counts[MLLM_SECTION_TENSORS]; i++) {
    const mllm_tensor_record *tensor = &program->tensors[i];
    if (tensor->storage != MLLM_STORAGE_WEIGHT) continue;
    if (strcmp(mllm_program_string(program, tensor->name), name) != 0) continue;
    if (!shape_of_weight(program, tensor, weight)) return MLLM_INVALID_PROGRAM;
    weight->name = mllm_program_string(program, tensor->name);
    weight->data = (void *)(uintptr_t)(model->weights + tensor->offset);
    weight->dtype = tensor->dtype;
    weight->rank = tensor->rank;
    return MLLM_OK;
  }
  return MLLM_INVALID_ARGUMENT;
}

mllm_status mllm_model_dim_text(const mllm_model *model, uint32_t expr, char *text, size_t bytes) {
  return mllm_dims_text(&model->program, expr, text, bytes);
}

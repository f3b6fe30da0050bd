#include "feed.h"

#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "status.h"

uint32_t mllm_entry_of_role(const mllm_model *model, const char *role) {
  mllm_entry_info info;
  for (uint32_t i = 0; i < mllm_model_entries(model); i++)
    if (mllm_model_entry(model, i, &info) == MLLM_OK && strcmp(info.role, role) == 0) return i;
  return MLLM_NO_TOKEN;
}

int64_t mllm_dim_bound(const mllm_model *model, const mllm_tensor_info *info, uint32_t dim) {
  if (info->dims[dim] >= 0 || info->symbols[dim] == NULL) return info->dims[dim];
  mllm_symbol_info symbol;
  for (uint32_t i = 0; i < mllm_model_symbols(model); i++)
    if (mllm_model_symbol(model, i, &symbol) == MLLM_OK &&
        strcmp(symbol.name, info->symbols[dim]) == 0)
      return symbol.max;
  return -1;
}

static mllm_status lacks(mllm_error *error, const char *what, const char *name) {
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_CONFIG, "%s '%s'", what, name);
}

static mllm_status take_input(mllm_feed *feed, const mllm_model *model, const mllm_past *past,
                              const mllm_tensor_info *info, mllm_error *error) {
  const bool ids = strcmp(info->name, "input_ids") == 0;
  const bool embeddings = strcmp(info->name, "inputs_embeds") == 0;
  if (ids || embeddings) {
    const int64_t chunk = info->rank >= 2 ? mllm_dim_bound(model, info, 1) : -1;
    const int64_t width = embeddings && info->rank == 3 ? info->dims[2] : 0;
    if (chunk < 1 || chunk > 1 << 20 || width < 0 || width > 1 << 20 || (embeddings && width == 0))
      return lacks(error, "tokens do not fit the input", info->name);
    feed->tokens = info->name;
    feed->chunk = (uint32_t)chunk;
    feed->width = (uint32_t)width;
    return MLLM_OK;
  }
  if (strcmp(info->name, "attention_mask") == 0 && info->dtype == MLLM_I64) {
    feed->mask = info->name;
    return MLLM_OK;
  }
  if (strcmp(info->name, "position_ids") == 0 || strcmp(info->name, "cache_position") == 0) {
    feed->positions = info->name;
    feed->position_rank = info->rank;
    return MLLM_OK;
  }
  if (mllm_past_takes(past, info->name)) return MLLM_OK;
  if (info->arena_offset != UINT64_MAX) {
    feed->reads_features = true;
    return MLLM_OK;
  }
  return lacks(error, "the runtime does not know how to fill the input", info->name);
}

static mllm_status take_logits(mllm_feed *feed, const mllm_model *model, uint32_t outputs,
                               mllm_error *error) {
  mllm_tensor_info info = {0}, other;
  for (uint32_t i = 0; i < outputs; i++) {
    if (mllm_model_output(model, feed->entry, i, &other) != MLLM_OK) continue;
    if (i == 0 || strcmp(other.name, "logits") == 0) info = other;
  }
  const int64_t vocabulary = info.rank == 0 ? 0 : info.dims[info.rank - 1];
  if (info.dtype != MLLM_F32 || vocabulary < 1 || vocabulary > 1 << 28)
    return lacks(error, "these are no logits:", info.name == NULL ? "" : info.name);
  feed->logits = info.name;
  feed->vocabulary = (uint32_t)vocabulary;
  if (info.arena_offset != UINT64_MAX) return MLLM_OK;
  feed->own_bytes = (size_t)info.max_bytes;
  feed->own_logits = malloc(feed->own_bytes);
  if (feed->own_logits != NULL) return MLLM_OK;
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for logits");
}

mllm_status mllm_feed_make(mllm_feed *feed, const mllm_model *model, uint32_t entry,
                           const mllm_past *past, mllm_error *error) {
  *feed = (mllm_feed){.entry = entry};
  mllm_entry_info info;
  mllm_status status = mllm_model_entry(model, entry, &info);
  if (status != MLLM_OK) return status;
  feed->cache = info.cache;
  mllm_locate(error, info.name, NULL);
  for (uint32_t i = 0; status == MLLM_OK && i < info.inputs; i++) {
    mllm_tensor_info input;
    status = mllm_model_input(model, entry, i, &input);
    if (status == MLLM_OK) status = take_input(feed, model, past, &input, error);
  }
  if (status == MLLM_OK && feed->tokens == NULL) status = lacks(error, "no input", "input_ids");
  if (status == MLLM_OK) status = take_logits(feed, model, info.outputs, error);
  if (status == MLLM_OK) mllm_clear(error);
  return status;
}

void mllm_feed_free(mllm_feed *feed) {
  free(feed->own_logits);
  *feed = (mllm_feed){0};
}

static mllm_tensor row(const char *name, int64_t *data, uint32_t rank, int64_t count) {
  mllm_tensor tensor = {.name = name,
                        .data = data,
                        .bytes = (size_t)count * sizeof *data,
                        .dtype = MLLM_I64,
                        .rank = rank,
                        .dims = {1, count}};
  if (rank == 1) tensor.dims[0] = count;
  return tensor;
}

mllm_status mllm_feed_run(const mllm_feed *feed, mllm_session *session, mllm_feed_memory *memory,
                          uint32_t count, uint32_t past, const float **logits, mllm_error *error) {
  mllm_tensor *inputs = memory->inputs, *outputs = memory->outputs;
  const uint32_t pairs = memory->past.n_pairs;
  size_t n_inputs = 1;
  inputs[0] = row(feed->tokens, memory->ids, 2, count);
  if (feed->width > 0)
    inputs[0] = (mllm_tensor){.name = feed->tokens,
                              .data = memory->rows,
                              .bytes = (size_t)count * feed->width * sizeof(float),
                              .dtype = MLLM_F32,
                              .rank = 3,
                              .dims = {1, count, feed->width}};
  if (feed->mask != NULL)
    inputs[n_inputs++] = row(feed->mask, memory->ones, 2, (int64_t)past + count);
  if (feed->positions != NULL) {
    for (uint32_t i = 0; i < count; i++) memory->positions[i] = (int64_t)past + i;
    inputs[n_inputs++] = row(feed->positions, memory->positions, feed->position_rank, count);
  }
  mllm_past_bind(&memory->past, past, inputs + n_inputs, outputs + 1);
  outputs[0] =
      (mllm_tensor){.name = feed->logits, .data = feed->own_logits, .bytes = feed->own_bytes};
  const mllm_status status =
      mllm_run(session, feed->entry, inputs, n_inputs + pairs, outputs, 1 + pairs, error);
  if (status != MLLM_OK) return status;
  mllm_past_turn(&memory->past);
  const int64_t rows = outputs[0].rank < 2 ? 1 : outputs[0].dims[outputs[0].rank - 2];
  *logits = (const float *)outputs[0].data + (size_t)(rows - 1) * feed->vocabulary;
  return MLLM_OK;
}

#include "past.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "feed.h"
#include "status.h"

enum { NAME_BYTES = 256, LAYERS = 4096 };

/* The pattern with {layer} and {kind} filled in; false: it does not fit. */
static bool spell(const char *pattern, uint32_t layer, const char *kind, char *name) {
  size_t at = 0;
  while (*pattern != '\0') {
    int written = 1;
    if (strncmp(pattern, "{layer}", 7) == 0) {
      written = snprintf(name + at, NAME_BYTES - at, "%u", layer);
      pattern += 7;
    } else if (strncmp(pattern, "{kind}", 6) == 0) {
      written = snprintf(name + at, NAME_BYTES - at, "%s", kind);
      pattern += 6;
    } else {
      name[at] = *pattern++;
    }
    if (written < 0 || (size_t)written >= NAME_BYTES - at) return false;
    at += (size_t)written;
  }
  name[at] = '\0';
  return true;
}

typedef mllm_status (*port_of)(const mllm_model *, uint32_t, uint32_t, mllm_tensor_info *);

/* The input or output of a name; false: there is none. */
static bool find(const mllm_model *model, uint32_t entry, port_of port, const char *name,
                 mllm_tensor_info *info) {
  for (uint32_t i = 0; port(model, entry, i, info) == MLLM_OK; i++)
    if (strcmp(info->name, name) == 0) return true;
  return false;
}

static mllm_status lacks(mllm_error *error, const char *what, const char *name) {
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_CONFIG, "%s '%s'", what, name);
}

static mllm_tensor tensor_of(const mllm_tensor_info *info, size_t room) {
  return (mllm_tensor){.name = info->name,
                       .data = calloc(room + 1, 1),
                       .dtype = MLLM_F32,
                       .rank = 4,
                       .dims = {1, info->dims[1], 0, info->dims[3]}};
}

/* Adds the tensors of one layer and kind, where the entry takes them. */
static mllm_status add(mllm_past *past, const mllm_model *model, uint32_t entry, const char *input,
                       const char *output, mllm_error *error) {
  mllm_tensor_info in, out;
  if (!find(model, entry, mllm_model_input, input, &in)) return MLLM_OK;
  const int64_t tokens = in.rank == 4 ? mllm_dim_bound(model, &in, 2) : -1;
  if (in.dtype != MLLM_F32 || tokens < 0 || tokens >= UINT32_MAX || in.dims[2] >= 0 ||
      in.dims[1] < 1 || in.dims[3] < 1 || in.max_bytes > SIZE_MAX / 4 ||
      tokens > (int64_t)(in.max_bytes / sizeof(float)) / in.dims[1] / in.dims[3])
    return lacks(error, "this past cannot grow from nothing:", input);
  if (!find(model, entry, mllm_model_output, output, &out) || out.rank != 4 ||
      out.dtype != MLLM_F32 || out.dims[1] != in.dims[1] || out.dims[3] != in.dims[3] ||
      out.max_bytes > SIZE_MAX / 4)
    return lacks(error, "no output gives the past of the next step:", output);
  mllm_past_pair *grown = realloc(past->pairs, (past->n_pairs + 1) * sizeof *grown);
  if (grown != NULL) {
    past->pairs = grown;
    mllm_past_pair *pair = &grown[past->n_pairs++];
    pair->room = (size_t)(in.max_bytes > out.max_bytes ? in.max_bytes : out.max_bytes);
    pair->past = tensor_of(&in, pair->room);
    pair->present = tensor_of(&out, pair->room);
    if (past->capacity == 0 || tokens + 1 < past->capacity) past->capacity = (uint32_t)tokens + 1;
    if (pair->past.data != NULL && pair->present.data != NULL) return MLLM_OK;
  }
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for past tensors");
}

mllm_status mllm_past_make(mllm_past *past, const mllm_model *model, uint32_t entry,
                           const mllm_json_value *names, mllm_error *error) {
  const char *const patterns[] = {mllm_json_text(names, "key", "past_key_values.{layer}.key"),
                                  mllm_json_text(names, "value", "past_key_values.{layer}.value")};
  const char *out = mllm_json_text(names, "out", "present.{layer}.{kind}");
  static const char *const kinds[] = {"key", "value"};
  *past = (mllm_past){0};
  for (uint32_t layer = 0; layer < LAYERS && past->n_pairs == 2 * layer; layer++) {
    for (uint32_t kind = 0; kind < 2; kind++) {
      char input[NAME_BYTES], output[NAME_BYTES];
      if (!spell(patterns[kind], layer, kinds[kind], input) ||
          !spell(out, layer, kinds[kind], output))
        return lacks(error, "a name of the cache is too long:", out);
      const mllm_status status = add(past, model, entry, input, output, error);
      if (status != MLLM_OK) return status;
    }
  }
  return MLLM_OK;
}

void mllm_past_free(mllm_past *past) {
  for (uint32_t i = 0; i < past->n_pairs; i++) {
    free(past->pairs[i].past.data);
    free(past->pairs[i].present.data);
  }
  free(past->pairs);
  *past = (mllm_past){0};
}

bool mllm_past_takes(const mllm_past *past, const char *input) {
  for (uint32_t i = 0; i < past->n_pairs; i++)
    if (strcmp(past->pairs[i].past.name, input) == 0) return true;
  return false;
}

void mllm_past_bind(const mllm_past *past, uint32_t tokens, mllm_tensor *inputs,
                    mllm_tensor *outputs) {
  for (uint32_t i = 0; i < past->n_pairs; i++) {
    const mllm_past_pair *pair = &past->pairs[i];
    inputs[i] = pair->past;
    inputs[i].dims[2] = tokens;
    inputs[i].bytes = pair->room;
    outputs[i] = pair->present;
    outputs[i].bytes = pair->room;
  }
}

void mllm_past_turn(mllm_past *past) {
  for (uint32_t i = 0; i < past->n_pairs; i++) {
    mllm_past_pair *pair = &past->pairs[i];
    void *data = pair->past.data;
    pair->past.data = pair->present.data;
    pair->present.data = data;
  }
}

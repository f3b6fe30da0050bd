#include "cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool open_cases(const char *path, case_file *file) {
  memset(file, 0, sizeof *file);
  FILE *stream = fopen(path, "rb");
  if (stream == NULL) return false;
  (void)fseek(stream, 0, SEEK_END);
  const long size = ftell(stream);
  rewind(stream);
  file->bytes = aligned_alloc(64, ((size_t)size + 127) / 64 * 64);
  file->size = (size_t)size;
  const bool read = file->bytes != NULL && fread(file->bytes, 1, file->size, stream) == file->size;
  (void)fclose(stream);
  return read;
}

void close_cases(case_file *file) { free(file->bytes); }

static uint64_t next_word(case_file *file) {
  uint64_t word;
  memcpy(&word, file->bytes + file->at, sizeof word);
  file->at += sizeof word;
  return word;
}

static const unsigned char *next_piece(case_file *file, size_t *bytes) {
  *bytes = (size_t)next_word(file);
  const unsigned char *piece = file->bytes + file->at;
  file->at += (*bytes + 7) / 8 * 8;
  return piece;
}

static mllm_tensor next_tensor(case_file *file) {
  size_t bytes = 0;
  mllm_tensor tensor = {.name = (const char *)next_piece(file, &bytes)};
  tensor.dtype = (uint32_t)next_word(file);
  tensor.rank = (uint32_t)next_word(file);
  for (uint32_t i = 0; i < tensor.rank; i++) tensor.dims[i] = (int64_t)next_word(file);
  tensor.data = (void *)(uintptr_t)next_piece(file, &tensor.bytes);
  return tensor;
}

bool next_case(case_file *file, test_case *made) {
  if (file->at >= file->size) return false;
  size_t bytes = 0;
  memset(made, 0, sizeof *made);
  made->name = (const char *)next_piece(file, &bytes);
  made->program = next_piece(file, &made->program_bytes);
  made->weights = next_piece(file, &made->weight_bytes);
  made->n_inputs = (size_t)next_word(file);
  for (size_t i = 0; i < made->n_inputs; i++) made->inputs[i] = next_tensor(file);
  made->expected = next_tensor(file);
  memcpy(&made->rtol, file->bytes + file->at, sizeof made->rtol);
  memcpy(&made->atol, file->bytes + file->at + sizeof made->rtol, sizeof made->atol);
  file->at += sizeof made->rtol + sizeof made->atol;
  return true;
}

bool agrees(const test_case *expected, const void *found, size_t *bad) {
  const mllm_tensor *y = &expected->expected;
  *bad = 0;
  if (y->dtype != MLLM_F32) return memcmp(y->data, found, y->bytes) == 0;
  for (size_t i = 0; i < y->bytes / sizeof(float); i++) {
    const double want = (double)((const float *)y->data)[i];
    const double have = (double)((const float *)found)[i];
    const bool same = have == want || (isnan(have) && isnan(want));
    if (same || fabs(have - want) <= expected->atol + expected->rtol * fabs(want)) continue;
    *bad = i;
    return false;
  }
  return true;
}

static mllm_status open_device(void *context, const mllm_bundle *bundle, void **opened,
                               mllm_error *error) {
  (void)context, (void)bundle, (void)error;
  *opened = malloc(1); /* that close is called is seen by a leak checker */
  return *opened == NULL ? MLLM_OUT_OF_MEMORY : MLLM_OK;
}

static mllm_status prepare(void *context, void *opened, const char *name, void **function,
                           mllm_error *error) {
  (void)context, (void)error;
  *function = opened;
  return strcmp(name, "negate") == 0 ? MLLM_OK : MLLM_UNSUPPORTED;
}

static mllm_status negate(void *context, void *opened, void *function, const mllm_tensor *inputs,
                          size_t n_inputs, const mllm_tensor *outputs, size_t n_outputs,
                          mllm_error *error) {
  (void)context, (void)opened, (void)function, (void)error;
  if (n_inputs != 1 || n_outputs != 1 || inputs->bytes != outputs->bytes) return MLLM_INTERNAL;
  if (inputs->dtype != MLLM_F32 || outputs->dtype != MLLM_F32) return MLLM_INTERNAL;
  const float *x = inputs->data;
  float *y = outputs->data;
  for (size_t i = 0; i < inputs->bytes / sizeof *x; i++) y[i] = -x[i];
  return MLLM_OK;
}

static void close_device(void *context, void *opened) {
  (void)context;
  free(opened);
}

const mllm_device test_device = {.name = "test",
                                 .open = open_device,
                                 .prepare = prepare,
                                 .run = negate,
                                 .close = close_device};

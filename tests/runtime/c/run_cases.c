/* run_cases: every kernel case with every instruction set, on one and on three threads, each
 * operand in a block of its own, so that a sanitizer sees a step outside of it.
 *
 *     run_cases FILE [EVERY]      EVERY: also damages each n-th byte of each program, and runs that
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"

/* A copy at the end of a block of its own; what to free in *block. */
static void *own_copy(const void *data, size_t bytes, void **block) {
  const size_t whole = (bytes + 63) / 64 * 64;
  unsigned char *memory = aligned_alloc(64, whole == 0 ? 64 : whole);
  if (memory == NULL) abort();
  *block = memory;
  unsigned char *copy = memory + (whole - bytes) / 8 * 8;
  if (data != NULL && bytes > 0) memcpy(copy, data, bytes);
  return copy;
}

static mllm_status run_program(const test_case *test, const void *program, const char *cpu,
                               uint32_t threads, void *y, mllm_error *error) {
  mllm_model *model = NULL;
  mllm_session *session = NULL;
  mllm_tensor inputs[CASE_INPUTS];
  void *blocks[CASE_INPUTS + 1] = {NULL};
  const mllm_model_options options = {MLLM_ABI_VERSION, cpu};
  void *weights = own_copy(test->weights, test->weight_bytes, &blocks[CASE_INPUTS]);
  mllm_status status =
      mllm_model_create_on(program, test->program_bytes, weights, test->weight_bytes, &options,
                           &test_device, 1, &model, error);
  if (status == MLLM_OK) {
    status =
        mllm_session_create(model, &(mllm_session_options){.threads = threads}, &session, error);
  }
  if (status == MLLM_OK) {
    for (size_t i = 0; i < test->n_inputs; i++) {
      inputs[i] = test->inputs[i];
      inputs[i].data = own_copy(inputs[i].data, inputs[i].bytes, &blocks[i]);
    }
    mllm_tensor out = {.name = "y", .data = y, .bytes = test->expected.bytes};
    status = mllm_run(session, 0, inputs, test->n_inputs, &out, 1, error);
  }
  mllm_session_destroy(session);
  mllm_model_destroy(model);
  for (size_t i = 0; i <= CASE_INPUTS; i++) free(blocks[i]);
  return status;
}

static int run_case(const test_case *test, const char *cpu, uint32_t threads) {
  mllm_error error;
  void *block = NULL;
  size_t bad = 0;
  void *y = own_copy(NULL, test->expected.bytes, &block);
  memset(y, 0xA5, test->expected.bytes);
  const mllm_status status = run_program(test, test->program, cpu, threads, y, &error);
  int failed = 0;
  if (status != MLLM_OK) {
    (void)fprintf(stderr, "%s (%s): %s: %s\n", test->name, cpu, error.location, error.message);
    failed = 1;
  } else if (!agrees(test, y, &bad)) {
    (void)fprintf(stderr, "%s (%s, %u threads): element %zu differs\n", test->name, cpu, threads,
                  bad);
    failed = 1;
  }
  free(block);
  return failed;
}

/* Damaged programs may fail or give anything; they must not touch memory that is not theirs. */
static void damage_case(const test_case *test, size_t every, size_t offset) {
  mllm_error error;
  void *block = NULL;
  void *y = own_copy(NULL, test->expected.bytes, &block);
  unsigned char *program = malloc(test->program_bytes);
  if (program == NULL) abort();
  for (size_t at = offset % every; at < test->program_bytes; at += every) {
    memcpy(program, test->program, test->program_bytes);
    program[at] ^= (unsigned char)(1U << (at % 8));
    memset(y, 0, test->expected.bytes);
    (void)run_program(test, program, "scalar", 1, y, &error);
  }
  free(program);
  free(block);
}

static bool has_cpu(const test_case *test, const char *cpu) {
  mllm_error error;
  mllm_model *model = NULL;
  void *block = NULL;
  void *weights = own_copy(test->weights, test->weight_bytes, &block);
  const mllm_model_options options = {MLLM_ABI_VERSION, cpu};
  (void)mllm_model_create_on(test->program, test->program_bytes, weights, test->weight_bytes,
                             &options, &test_device, 1, &model, &error);
  const bool has = model != NULL;
  mllm_model_destroy(model);
  free(block);
  return has;
}

int main(int argc, char **argv) {
  static const char *const cpus[] = {"scalar", "avx2", "avx512"};
  case_file file;
  test_case test;
  int failures = 0;
  size_t cases = 0;
  if (argc < 2 || !open_cases(argv[1], &file)) {
    (void)fprintf(stderr, "usage: run_cases FILE [EVERY]\n");
    return 2;
  }
  const size_t every = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 0;
  while (next_case(&file, &test)) {
    for (size_t i = 0; i < sizeof cpus / sizeof cpus[0]; i++) {
      if (!has_cpu(&test, cpus[i])) continue;
      failures += run_case(&test, cpus[i], 1) + run_case(&test, cpus[i], 3);
    }
    if (every > 0) damage_case(&test, every, cases);
    cases++;
  }
  close_cases(&file);
  (void)printf("%zu cases, %d failures\n", cases, failures);
  return failures != 0 || cases == 0;
}

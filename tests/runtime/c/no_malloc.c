/* no_malloc: runs every case and counts calls of the allocator during mllm_run. This program's
 * malloc stands in front of the C library's, in the runtime too; that creating a session is seen
 * proves it.
 *
 *     no_malloc FILE
 */
#include <stdio.h>
#include <string.h>

#include "allocations.h"
#include "cases.h"

static size_t calls_of(const test_case *test) {
  mllm_error error;
  mllm_model *model = NULL;
  mllm_session *session = NULL;
  mllm_tensor out = {.name = "y", .bytes = test->expected.bytes};
  out.data = aligned_alloc(64, (test->expected.bytes + 127) / 64 * 64);
  size_t calls = mllm_allocations_count();
  mllm_status status =
      mllm_model_create_on(test->program, test->program_bytes, test->weights, test->weight_bytes,
                           NULL, &test_device, 1, &model, &error);
  if (status == MLLM_OK) {
    status = mllm_session_create(model, &(mllm_session_options){.threads = 3}, &session, &error);
  }
  if (status != MLLM_OK || mllm_allocations_count() == calls) return SIZE_MAX; /* it sees nothing */
  calls = mllm_allocations_count();
  status = mllm_run(session, 0, test->inputs, test->n_inputs, &out, 1, &error);
  mllm_tensor wrong = {.name = "nobody", .dtype = MLLM_F32};
  (void)mllm_run(session, 0, &wrong, 1, NULL, 0, &error);
  calls = mllm_allocations_count() - calls;
  mllm_session_destroy(session);
  mllm_model_destroy(model);
  return status == MLLM_OK ? calls : SIZE_MAX;
}

int main(int argc, char **argv) {
  case_file file;
  test_case test;
  size_t cases = 0;
  if (argc != 2 || !open_cases(argv[1], &file)) return 2;
  for (; next_case(&file, &test); cases++) {
    const size_t found = calls_of(&test);
    if (found == 0) continue;
    (void)fprintf(stderr, "%s: %zu allocations during mllm_run\n", test.name, found);
    return 1;
  }
  (void)printf("%zu cases, no allocation\n", cases);
  return cases == 0;
}

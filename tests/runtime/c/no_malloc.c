/* no_malloc: runs every case and counts calls of the allocator during mllm_run. This program's
 * malloc stands in front of the C library's, in the runtime too; that creating a session is seen
 * proves it.
 *
 *     no_malloc FILE
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "cases.h"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_bool watching;
static atomic_size_t calls;

static void note(void) {
  if (atomic_load(&watching)) atomic_fetch_add(&calls, 1);
}

void *malloc(size_t bytes) {
  note();
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  note();
  return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
  note();
  return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}

static size_t calls_of(const test_case *test) {
  mllm_error error;
  mllm_model *model = NULL;
  mllm_session *session = NULL;
  mllm_tensor out = {.name = "y", .bytes = test->expected.bytes};
  out.data = aligned_alloc(64, (test->expected.bytes + 127) / 64 * 64);
  atomic_store(&calls, 0);
  atomic_store(&watching, true);
  mllm_status status =
      mllm_model_create_on(test->program, test->program_bytes, test->weights, test->weight_bytes,
                           NULL, &test_device, 1, &model, &error);
  if (status == MLLM_OK) {
    status = mllm_session_create(model, &(mllm_session_options){.threads = 3}, &session, &error);
  }
  if (status != MLLM_OK || atomic_load(&calls) == 0) return SIZE_MAX; /* nothing is being watched */
  atomic_store(&calls, 0);
  status = mllm_run(session, 0, test->inputs, test->n_inputs, &out, 1, &error);
  mllm_tensor wrong = {.name = "nobody", .dtype = MLLM_F32};
  (void)mllm_run(session, 0, &wrong, 1, NULL, 0, &error);
  atomic_store(&watching, false);
  mllm_session_destroy(session);
  mllm_model_destroy(model);
  return status == MLLM_OK ? atomic_load(&calls) : SIZE_MAX;
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

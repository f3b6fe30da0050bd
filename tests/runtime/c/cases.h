/* cases.h - reads the file that tests/runtime/write_cases.py writes. */
#ifndef CASES_H
#define CASES_H

#include <stdbool.h>

#include "mllm_devices.h"

enum { CASE_INPUTS = 16 };

/* Pointers into the file's bytes. */
typedef struct test_case {
  const char *name;
  const unsigned char *program;
  size_t program_bytes;
  const unsigned char *weights;
  size_t weight_bytes;
  mllm_tensor inputs[CASE_INPUTS];
  size_t n_inputs;
  mllm_tensor expected;
  double rtol;
  double atol;
} test_case;

typedef struct case_file {
  unsigned char *bytes;
  size_t size;
  size_t at;
} case_file;

bool open_cases(const char *path, case_file *file);
/* False after the last. */
bool next_case(case_file *file, test_case *made);
void close_cases(case_file *file);

/* The device "test": its function "negate" is y = -x of f32 tensors of one shape. */
extern const mllm_device test_device;

/* Within rtol and atol, NaN equal to NaN; the first element that is not, in *bad. */
bool agrees(const test_case *expected, const void *found, size_t *bad);

#endif /* CASES_H */

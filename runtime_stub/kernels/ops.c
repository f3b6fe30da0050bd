/* ops.c - the instruction sets that this build has, and which of them this processor runs. */
#include "ops.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../src/status.h"

#define DECLARE(variant)                               \
  extern const mllm_gemm_ops mllm_gemm_ops_##variant;  \
  extern const mllm_math_ops mllm_math_ops_##variant;  \
  extern const mllm_row_ops mllm_row_ops_##variant;    \
  extern const mllm_code_ops mllm_code_ops_##variant;  \
  static const mllm_ops variant##_ops = {              \
      #variant, &mllm_gemm_ops_##variant, &mllm_math_ops_##variant, &mllm_row_ops_##variant, \
      &mllm_code_ops_##variant};

#if defined(__x86_64__)
DECLARE(scalar)
DECLARE(avx2)
DECLARE(avx512)
/* the best last */
static const mllm_ops *const variants[] = {&scalar_ops, &avx2_ops, &avx512_ops};

static bool runs_here(const mllm_ops *ops) {
  if (ops == &avx512_ops) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  }
  if (ops == &avx2_ops) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return true;
}
#else
DECLARE(scalar)
static const mllm_ops *const variants[] = {&scalar_ops};

static bool runs_here(const mllm_ops *ops) {
  (void)ops;
  return true;
}
#endif

mllm_status mllm_choose_ops(const char *cpu, const mllm_ops **ops, mllm_error *error) {
  if (cpu == NULL) cpu = getenv("MLLM_CPU");
  const size_t count = sizeof variants / sizeof variants[0];
  for (size_t i = count; i-- > 0;) {
    const bool wanted = cpu == NULL || cpu[0] == '\0' || strcmp(cpu, variants[i]->name) == 0;
    if (!wanted || !runs_here(variants[i])) continue;
    *ops = variants[i];
    return MLLM_OK;
  }
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_KERNEL,
                   "this processor or build has no '%s' kernels", cpu == NULL ? "" : cpu);
}

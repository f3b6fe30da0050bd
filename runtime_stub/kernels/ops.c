/* ops.c - the instruction sets that this build has, and which of them this processor runs. */
#include "ops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../src/status.h"

#define DECLARE(variant)                              \
  extern const mllm_gemm_ops mllm_gemm_ops_##variant; \
  extern const mllm_math_ops mllm_math_ops_##variant; \
  extern const mllm_row_ops mllm_row_ops_##variant;   \
  extern const mllm_stored_ops mllm_stored_ops_##variant; \
  extern const mllm_code_ops mllm_code_ops_##variant; \
  extern const mllm_tile_ops mllm_tile_ops_##variant;
#define OPS(variant, reals, tiles_of)                                                          \
  {#variant, &mllm_gemm_ops_##reals, &mllm_math_ops_##reals, &mllm_row_ops_##reals,            \
   &mllm_stored_ops_##reals, &mllm_code_ops_##reals, &mllm_tile_ops_##tiles_of}

DECLARE(scalar)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
extern const mllm_tile_ops mllm_tile_ops_avxvnni;
extern const mllm_tile_ops mllm_tile_ops_avx512vnni;
#endif

/* the best last */
static const mllm_ops variants[] = {
    OPS(scalar, scalar, scalar),
#if defined(__x86_64__)
    OPS(avx2, avx2, avx2),
    OPS(avxvnni, avx2, avxvnni),
    OPS(avx512, avx512, avx512),
    OPS(avx512vnni, avx512, avx512vnni),
#endif
};

#if defined(__x86_64__)
/* F16C is bit 29 of ecx of CPUID leaf 1. */
static bool has_f16c(void) {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
}

/* AVX-VNNI is bit 4 of eax of CPUID leaf 7.1; not every compiler has a name for it. */
static bool has_avxvnni(void) {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

static bool runs_here(const char *name) {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq");
  if (strcmp(name, "avx2") == 0) return avx2;
  if (strcmp(name, "avxvnni") == 0) return avx2 && has_avxvnni();
  if (strcmp(name, "avx512") == 0) return avx512;
  if (strcmp(name, "avx512vnni") == 0) return avx512 && __builtin_cpu_supports("avx512vnni");
  return true;
}
#else
static bool runs_here(const char *name) {
  (void)name;
  return true;
}
#endif

mllm_status mllm_choose_ops(const char *cpu, const mllm_ops **ops, mllm_error *error) {
  if (cpu == NULL) cpu = getenv("MLLM_CPU");
  const size_t count = sizeof variants / sizeof variants[0];
  for (size_t i = count; i-- > 0;) {
    const bool wanted = cpu == NULL || cpu[0] == '\0' || strcmp(cpu, variants[i].name) == 0;
    if (!wanted || !runs_here(variants[i].name)) continue;
    *ops = &variants[i];
    return MLLM_OK;
  }
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_KERNEL,
                   "this processor or build has no '%s' kernels", cpu == NULL ? "" : cpu);
}

/* status.c - versions, status names and located errors. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t mllm_abi_version(void) { return MLLM_ABI_VERSION; }

const char *mllm_version(void) { return "0.1.0"; }

const char *mllm_status_name(mllm_status status) {
  switch (status) {
    case MLLM_OK: return "ok";
    case MLLM_INVALID_ARGUMENT: return "invalid argument";
    case MLLM_INVALID_PROGRAM: return "invalid program";
    case MLLM_UNSUPPORTED: return "unsupported";
    case MLLM_OUT_OF_MEMORY: return "out of memory";
    case MLLM_OUT_OF_BOUNDS: return "out of bounds";
    case MLLM_IO: return "input/output error";
    case MLLM_CORRUPT: return "corrupt";
    case MLLM_UNTRUSTED: return "untrusted";
    case MLLM_INTERNAL: return "internal error";
  }
  return "unknown status";
}

size_t mllm_dtype_bytes(uint32_t dtype) {
  switch (dtype) {
    case MLLM_F64:
    case MLLM_I64:
    case MLLM_U64: return 8;
    case MLLM_F32:
    case MLLM_I32:
    case MLLM_U32: return 4;
    case MLLM_F16:
    case MLLM_BF16:
    case MLLM_I16:
    case MLLM_U16: return 2;
    case MLLM_I8:
    case MLLM_U8:
    case MLLM_BOOL: return 1;
    default: return 0;
  }
}

const char *mllm_dtype_name(uint32_t dtype) {
  switch (dtype) {
    case MLLM_F32: return "float32";
    case MLLM_F64: return "float64";
    case MLLM_F16: return "float16";
    case MLLM_BF16: return "bfloat16";
    case MLLM_I64: return "int64";
    case MLLM_I32: return "int32";
    case MLLM_I16: return "int16";
    case MLLM_I8: return "int8";
    case MLLM_U64: return "uint64";
    case MLLM_U32: return "uint32";
    case MLLM_U16: return "uint16";
    case MLLM_U8: return "uint8";
    case MLLM_BOOL: return "bool";
    default: return "no dtype";
  }
}

mllm_status mllm_fail(mllm_error *error, mllm_status status, const char *code, const char *format,
                      ...) {
  if (error == NULL) return status;
  error->status = status;
  (void)snprintf(error->code, sizeof error->code, "%s", code);
  va_list args;
  va_start(args, format);
  (void)vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  return status;
}

void mllm_locate(mllm_error *error, const char *outer, const char *inner) {
  if (error == NULL) return;
  if (inner == NULL || inner[0] == '\0') {
    (void)snprintf(error->location, sizeof error->location, "%s", outer);
    return;
  }
  (void)snprintf(error->location, sizeof error->location, "%s: %s", outer, inner);
}

void mllm_clear(mllm_error *error) {
  if (error != NULL) memset(error, 0, sizeof *error);
}

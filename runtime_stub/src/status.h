/* status.h - filling an mllm_error. */
#ifndef MLLM_STATUS_H
#define MLLM_STATUS_H

#include "mllm.h"

/* The runtime's codes; docs/errors.md explains each. */
#define MLLM_CODE_ARGUMENT "MLC-X001"
#define MLLM_CODE_PROGRAM  "MLC-X002"
#define MLLM_CODE_KERNEL   "MLC-X003"
#define MLLM_CODE_MEMORY   "MLC-X004"
#define MLLM_CODE_BOUND    "MLC-X005"
#define MLLM_CODE_CACHE    "MLC-X006"
#define MLLM_CODE_OPERAND  "MLC-X007"
#define MLLM_CODE_VERSION  "MLC-X008"

#define MLLM_CODE_NO_DEVICE "MLC-X028"
#define MLLM_CODE_DEVICE    "MLC-X029"
#define MLLM_CODE_UNSEEN    "MLC-X030"
#define MLLM_CODE_DRAFTS    "MLC-X040"
#define MLLM_CODE_SHARED    "MLC-X041"
#define MLLM_CODE_ADMISSION "MLC-X042"
#define MLLM_CODE_WINDOW    "MLC-X043"

#define MLLM_CODE_POOL_FULL   "MLC-X060"
#define MLLM_CODE_REGION      "MLC-X061"
#define MLLM_CODE_BUFFER      "MLC-X062"
#define MLLM_CODE_ACCESS      "MLC-X063"
#define MLLM_CODE_MAINTENANCE "MLC-X064"
#define MLLM_CODE_FORBIDDEN   "MLC-X065"
#define MLLM_CODE_SHARE       "MLC-X066"

/* Writes status, code and message (printf-like); location stays. error may be NULL. Returns status.
 */
mllm_status mllm_fail(mllm_error *error, mllm_status status, const char *code, const char *format,
                      ...) __attribute__((format(printf, 4, 5)));

/* Sets "{outer}: {inner}" as location; inner may be NULL or "". error may be NULL. */
void mllm_locate(mllm_error *error, const char *outer, const char *inner);

/* Clears all fields. error may be NULL. */
void mllm_clear(mllm_error *error);

#endif /* MLLM_STATUS_H */

/* caches.h - what a program says of its KV caches. */
#ifndef MLLM_CACHES_H
#define MLLM_CACHES_H

#include "program.h"

/* Every cache of a program can be made. */
mllm_status mllm_caches_check(const mllm_program *program, mllm_error *error);

/* [caches] infos with their formats and scales of keys, which infos own; names are the program's. */
mllm_status mllm_caches_read(const mllm_program *program, const unsigned char *weights,
                             mllm_cache_info **infos, mllm_error *error);
void mllm_caches_free(mllm_cache_info *infos, uint32_t count);

#endif /* MLLM_CACHES_H */

/* Files, mapped read-only. */
#ifndef MLLM_FILE_H
#define MLLM_FILE_H

#include "mllm.h"

#define MLLM_CODE_FILE "MLC-U005"

typedef struct mllm_mapping {
  const uint8_t *bytes; /* NULL for an empty file */
  size_t size;
} mllm_mapping;

/* Maps a file; on failure the error's location is the path. */
mllm_status mllm_map_file(const char *path, mllm_mapping *mapping, mllm_error *error);
void mllm_unmap(mllm_mapping *mapping);

#endif

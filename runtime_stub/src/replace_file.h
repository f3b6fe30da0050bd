/* A file that is replaced as a whole: until it is, its old bytes are there, and after a fault or a
 * kill too. */
#ifndef MLLM_REPLACE_FILE_H
#define MLLM_REPLACE_FILE_H

#include "mllm.h"

#define MLLM_CODE_STORAGE "MLC-X052" /* a file that cannot be written, or read */

typedef struct mllm_replacing {
  const char *path;
  char *part; /* the path of what is written so far: path + ".part" */
  int file;
} mllm_replacing;

/* Begins; errors are located at the path. A part that a killed process left is written over, one
 * that another process writes is not. */
mllm_status mllm_replace_begin(const char *path, mllm_replacing *r, mllm_error *error);
mllm_status mllm_replace_write(mllm_replacing *r, const void *bytes, size_t size,
                               mllm_error *error);
/* Ends; with `status` MLLM_OK the new file stands at its path, for good where the system keeps its
 * word, else the part is removed. Gives the status, or why it could not. */
mllm_status mllm_replace_end(mllm_replacing *r, mllm_status status, mllm_error *error);

/* Reads exactly size bytes; fewer: 0 of them are there, and errno is 0. Gives whether all are. */
int mllm_read_all(int file, void *bytes, size_t size);

#endif /* MLLM_REPLACE_FILE_H */

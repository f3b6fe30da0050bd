/* The text around a prompt, from the segments of config.json. */
#ifndef MLLM_TEMPLATE_H
#define MLLM_TEMPLATE_H

#include "config.h"
#include "mllm_tokenizer.h"

enum { MLLM_MAX_SEGMENTS = 32 };

/* The rendered text; images stand between its bytes. */
typedef struct mllm_rendered {
  char *text; /* malloc'ed */
  size_t size;
  mllm_plain_span spans[MLLM_MAX_SEGMENTS]; /* what came from the caller */
  size_t n_spans;
  size_t images[MLLM_MAX_SEGMENTS]; /* offsets, ascending */
  size_t n_images;
} mllm_rendered;

/* `system` may be NULL: the template's own. On success rendered->text has to be freed. */
mllm_status mllm_template_render(const mllm_config *config, const char *prompt, const char *system,
                                 bool has_image, mllm_rendered *rendered, mllm_error *error);

#endif

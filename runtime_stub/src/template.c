#include "template.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

typedef struct piece {
  const char *text;
  size_t size;
} piece;

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static piece inserted(const char *text, bool trim) {
  piece result = {text, strlen(text)};
  while (trim && result.size > 0 && is_space(result.text[0])) result.text++, result.size--;
  while (trim && result.size > 0 && is_space(result.text[result.size - 1])) result.size--;
  return result;
}

/* What a segment stands for; *plain: it is the caller's text. */
static piece resolve(const mllm_json_value *segment, const char *prompt, const char *system,
                     bool *plain) {
  const char *literal = mllm_json_text(segment, "literal", NULL);
  const bool trim = mllm_json_bool(segment, "trim", false);
  *plain = literal == NULL;
  if (literal != NULL) return inserted(literal, false);
  if (mllm_json_bool(segment, "prompt", false)) return inserted(prompt, trim);
  if (mllm_json_bool(segment, "system", false)) return inserted(system, trim);
  return (piece){"", 0};
}

static mllm_status segments_of(const mllm_config *config, bool has_system, bool has_image,
                               const mllm_json_value **segments, mllm_error *error) {
  *segments = NULL;
  const mllm_json_value *forms = mllm_json_get(config->text, "template");
  if (forms == NULL || forms->kind != MLLM_JSON_OBJECT) {
    if (!has_system) return MLLM_OK;
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_INPUT,
                     "the model has no template that takes a system prompt");
  }
  const char *name =
      has_image ? (has_system ? "image_system" : "image") : (has_system ? "system" : "plain");
  const mllm_json_value *form = mllm_json_get(forms, name);
  if (form == NULL && !has_image && mllm_json_get(forms, "image") != NULL)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_INPUT, "the model wants an image");
  if (form == NULL || form->kind != MLLM_JSON_ARRAY)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_INPUT,
                     "the model's template has no form '%s'", name);
  if (form->count > MLLM_MAX_SEGMENTS)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CONFIG, "the template has too many segments");
  *segments = form;
  return MLLM_OK;
}

static void append(mllm_rendered *rendered, piece part, bool plain) {
  memcpy(rendered->text + rendered->size, part.text, part.size);
  if (plain && part.size > 0)
    rendered->spans[rendered->n_spans++] =
        (mllm_plain_span){rendered->size, rendered->size + part.size};
  rendered->size += part.size;
}

mllm_status mllm_template_render(const mllm_config *config, const char *prompt, const char *system,
                                 bool has_image, mllm_rendered *rendered, mllm_error *error) {
  *rendered = (mllm_rendered){0};
  const mllm_json_value *segments;
  const mllm_status status = segments_of(config, system != NULL, has_image, &segments, error);
  if (status != MLLM_OK) return status;
  const uint32_t count = segments == NULL ? 0 : segments->count;
  size_t total = 1;
  bool plain;
  const mllm_json_value *segment = mllm_json_first(segments);
  for (uint32_t i = 0; i < count; i++, segment = mllm_json_next(segment))
    total += resolve(segment, prompt, system, &plain).size;
  rendered->text = malloc(total + strlen(prompt));
  if (rendered->text == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a prompt");
  if (segments == NULL) { /* no template: the image, then the prompt */
    if (has_image) rendered->images[rendered->n_images++] = 0;
    append(rendered, inserted(prompt, false), true);
    return MLLM_OK;
  }
  segment = mllm_json_first(segments);
  for (uint32_t i = 0; i < count; i++, segment = mllm_json_next(segment)) {
    const piece part = resolve(segment, prompt, system, &plain);
    const bool image = mllm_json_bool(segment, "image", false);
    if (image && has_image) rendered->images[rendered->n_images++] = rendered->size;
    if (!image) append(rendered, part, plain);
  }
  return MLLM_OK;
}

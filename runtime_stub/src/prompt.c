/* From a prompt to the row of ids that is fed, image features in their places. */
#include <stdlib.h>
#include <string.h>

#include "generator.h"
#include "status.h"
#include "template.h"

static mllm_status too_long(const mllm_generator *g, size_t count, mllm_error *error) {
  return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_LENGTH,
                   "the prompt has %zu tokens, the model's cache holds %u", count, g->capacity);
}

/* Appends the ids of one stretch of text, whose spans are those of the whole text. */
static size_t encode_part(mllm_generator *g, const mllm_rendered *whole, size_t start, size_t end,
                          void *scratch, size_t count) {
  mllm_plain_span spans[MLLM_MAX_SEGMENTS];
  size_t n_spans = 0;
  for (size_t i = 0; i < whole->n_spans; i++)
    if (whole->spans[i].start >= start && whole->spans[i].end <= end)
      spans[n_spans++] =
          (mllm_plain_span){whole->spans[i].start - start, whole->spans[i].end - start};
  const size_t room = count < g->capacity ? g->capacity - count : 0;
  uint32_t *ids = room > 0 ? g->ids + count : NULL;
  return count + mllm_tokenizer_encode(&g->tokenizer, whole->text + start, end - start, spans,
                                       n_spans, false, scratch, ids, room);
}

static size_t append_features(mllm_generator *g, size_t count) {
  if (g->image_at == MLLM_NO_TOKEN) g->image_at = (uint32_t)count;
  const uint32_t rows = (uint32_t)g->features.dims[g->features.rank - 2];
  for (uint32_t i = 0; i < rows; i++, count++)
    if (count < g->capacity) g->ids[count] = MLLM_FEATURE_BIT | i;
  return count;
}

static mllm_status check_ids(mllm_generator *g, size_t count, mllm_error *error) {
  if (count > g->capacity) return too_long(g, count, error);
  if (count == 0)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_INPUT, "the prompt is empty");
  for (size_t i = 0; i < count; i++)
    if ((g->ids[i] & MLLM_FEATURE_BIT) == 0 && g->ids[i] >= g->prompt.vocabulary)
      return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CONFIG,
                       "token %u is outside of the model's vocabulary of %u", g->ids[i],
                       g->prompt.vocabulary);
  g->n_ids = (uint32_t)count;
  return MLLM_OK;
}

static mllm_status forced_ids(mllm_generator *g, mllm_error *error) {
  const mllm_json_value *list = mllm_json_get(g->config.generation, "forced_prompt");
  size_t count = 0;
  int64_t id;
  for (uint32_t i = 0; (id = mllm_config_id(list, i)) >= 0; i++, count++)
    if (count < g->capacity) g->ids[count] = (uint32_t)id & ~MLLM_FEATURE_BIT;
  return check_ids(g, count, error);
}

mllm_status mllm_prompt_ids(mllm_generator *g, const mllm_prompt *prompt, bool has_image,
                            mllm_error *error) {
  g->image_at = MLLM_NO_TOKEN;
  if (g->from_sound) return forced_ids(g, error);
  const int64_t width = has_image ? g->features.dims[g->features.rank - 1] : 0;
  if (has_image && (g->features.rank != 3 || width != g->prompt.width))
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CONFIG,
                     "the image's features are no embeddings of the language model");
  const char *text = prompt->text;
  if (text == NULL) text = mllm_json_text(g->config.text, "prompt", "");
  mllm_rendered whole;
  const mllm_status status =
      mllm_template_render(&g->config, text, prompt->system, has_image, &whole, error);
  if (status != MLLM_OK) return status;
  const size_t scratch_size = mllm_tokenizer_scratch(whole.size);
  void *scratch = scratch_size == SIZE_MAX ? NULL : malloc(scratch_size);
  if (scratch == NULL) {
    free(whole.text);
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for the prompt");
  }
  size_t count = 0, at = 0;
  for (size_t i = 0; i < whole.n_images; i++) {
    count = encode_part(g, &whole, at, whole.images[i], scratch, count);
    count = append_features(g, count);
    at = whole.images[i];
  }
  count = encode_part(g, &whole, at, whole.size, scratch, count);
  free(scratch);
  free(whole.text);
  return check_ids(g, count, error);
}

/* Making a generator: which entries there are, and memory for all that a step needs. */
#include "generator.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

static mllm_status no_memory(mllm_error *error) {
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to generate");
}

static mllm_status read_settings(mllm_generator *g, const mllm_bundle *bundle, mllm_error *error) {
  size_t size;
  const void *bytes = mllm_bundle_member(bundle, "config.json", &size);
  if (bytes == NULL)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CONFIG, "the bundle has no config.json");
  const mllm_status status = mllm_config_read(&g->config, bytes, size, error);
  if (status != MLLM_OK) return status;
  bytes = mllm_bundle_member(bundle, "text/tokenizer.bin", &size);
  if (bytes == NULL)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_INPUT, "the bundle has no tokenizer");
  const char *fault = mllm_tokenizer_open(&g->tokenizer, bytes, size);
  if (fault == NULL) return MLLM_OK;
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CONFIG, "text/tokenizer.bin: %s", fault);
}

/* The entry of the first role that the model has. */
static uint32_t first_of(const mllm_model *model, const char *const *roles) {
  for (; *roles != NULL; roles++) {
    const uint32_t entry = mllm_entry_of_role(model, *roles);
    if (entry != MLLM_NO_TOKEN) return entry;
  }
  return MLLM_NO_TOKEN;
}

/* The tensors that stand for a cache, where the entry has none; config.json says their names. */
static mllm_status make_past(mllm_generator *g, uint32_t entry, mllm_error *error) {
  mllm_entry_info info;
  mllm_status status = mllm_model_entry(g->model, entry, &info);
  if (status != MLLM_OK || info.cache >= 0) return status;
  const mllm_json_value *pipeline = mllm_json_get(g->config.document.values, "pipeline");
  const mllm_json_value *names = mllm_json_get(mllm_json_get(pipeline, "caches"), info.name);
  mllm_locate(error, info.name, NULL);
  status = mllm_past_make(&g->memory.past, g->model, entry, names, error);
  if (status == MLLM_OK) mllm_clear(error);
  return status;
}

static mllm_status find_entries(mllm_generator *g, mllm_error *error) {
  static const char *const prompt_roles[] = {"prefill", "language-model", "decoder", NULL};
  static const char *const decode_roles[] = {"decode", "decoder-with-past", "language-model", NULL};
  const uint32_t prompt = first_of(g->model, prompt_roles);
  const uint32_t decode = first_of(g->model, decode_roles);
  if (prompt == MLLM_NO_TOKEN || decode == MLLM_NO_TOKEN)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_INPUT, "the model generates no text");
  g->from_sound = prompt == mllm_entry_of_role(g->model, "decoder");
  g->encoder = mllm_entry_of_role(g->model, "encoder");
  g->projector = mllm_entry_of_role(g->model, "projector");
  g->embed = mllm_entry_of_role(g->model, "embedding");
  const mllm_past *past = &g->memory.past;
  mllm_status status = make_past(g, decode, error);
  if (status == MLLM_OK) status = mllm_feed_make(&g->prompt, g->model, prompt, past, error);
  if (status == MLLM_OK) status = mllm_feed_make(&g->decode, g->model, decode, past, error);
  if (status != MLLM_OK) return status;
  const bool carried = past->n_pairs > 0 && prompt == decode;
  if ((g->prompt.cache < 0 && !carried) || g->prompt.cache != g->decode.cache ||
      g->prompt.vocabulary != g->decode.vocabulary || g->prompt.width != g->decode.width)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_CONFIG,
                     "the entries for prompt and tokens do not share a cache");
  if (g->prompt.width == 0) return MLLM_OK;
  mllm_tensor_info ids;
  if (g->embed == MLLM_NO_TOKEN || mllm_model_input(g->model, g->embed, 0, &ids) != MLLM_OK)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_CONFIG,
                     "the model takes embeddings, and no entry computes them");
  g->embed_ids = ids.name;
  return MLLM_OK;
}

static size_t longest_token(const mllm_tokenizer *tokenizer) {
  size_t longest = 0, size;
  const char *bytes;
  for (uint32_t id = 0; id < tokenizer->n_tokens; id++)
    if (mllm_tokenizer_bytes(tokenizer, id, &bytes, &size) && size > longest) longest = size;
  return longest;
}

static void suppress(mllm_generator *g, const char *key, uint8_t flag) {
  const mllm_json_value *list = mllm_json_get(g->config.generation, key);
  int64_t id;
  for (uint32_t i = 0; (id = mllm_config_id(list, i)) >= 0; i++)
    if (id < g->prompt.vocabulary) g->suppressed[id] |= flag;
}

static size_t largest_chunk(const mllm_generator *g) {
  return g->prompt.chunk > g->decode.chunk ? g->prompt.chunk : g->decode.chunk;
}

/* Memory of one conversation, beside its cache. */
static bool take_own(mllm_generator *g) {
  const size_t rows = g->capacity + largest_chunk(g);
  g->memory.embeddings = calloc(rows * g->prompt.width + 1, sizeof(float));
  g->ids = calloc((size_t)g->capacity + 1, sizeof *g->ids);
  g->text = malloc(3 * (g->longest_token + sizeof g->utf8.held));
  return g->memory.embeddings != NULL && g->ids != NULL && g->text != NULL;
}

static mllm_status take_memory(mllm_generator *g, mllm_error *error) {
  const size_t chunk = largest_chunk(g);
  const size_t vocabulary = g->prompt.vocabulary;
  const uint32_t pairs = g->memory.past.n_pairs;
  g->capacity = g->memory.past.capacity;
  if (g->prompt.cache >= 0)
    g->capacity = mllm_session_cache_capacity(g->session, (uint32_t)g->prompt.cache);
  g->memory.ids = calloc(chunk, sizeof(int64_t));
  g->memory.positions = calloc(chunk, sizeof(int64_t));
  g->memory.ones = calloc(g->capacity + chunk, sizeof(int64_t));
  g->memory.inputs = calloc((size_t)pairs + 3, sizeof *g->memory.inputs);
  g->memory.outputs = calloc((size_t)pairs + 1, sizeof *g->memory.outputs);
  g->longest_token = longest_token(&g->tokenizer);
  const bool own = take_own(g);
  g->suppressed = calloc(vocabulary, 1);
  g->sampler.weights = calloc(vocabulary, sizeof *g->sampler.weights);
  g->sampler.order = calloc(vocabulary, sizeof *g->sampler.order);
  if (!own || g->memory.ids == NULL || g->memory.positions == NULL || g->memory.ones == NULL ||
      g->memory.inputs == NULL || g->memory.outputs == NULL || g->suppressed == NULL ||
      g->sampler.weights == NULL || g->sampler.order == NULL)
    return no_memory(error);
  for (size_t i = 0; i < g->capacity + chunk; i++) g->memory.ones[i] = 1;
  g->sampler.suppressed = g->suppressed;
  suppress(g, "suppress", MLLM_SUPPRESSED);
  suppress(g, "begin_suppress", MLLM_SUPPRESSED_FIRST);
  return MLLM_OK;
}

mllm_status mllm_generator_create(const mllm_bundle *bundle, const mllm_model *model,
                                  mllm_session *session, mllm_generator **generator,
                                  mllm_error *error) {
  *generator = NULL;
  mllm_clear(error);
  mllm_generator *g = calloc(1, sizeof *g);
  if (g == NULL) return no_memory(error);
  g->model = model;
  g->session = session;
  mllm_status status = read_settings(g, bundle, error);
  if (status == MLLM_OK) status = find_entries(g, error);
  if (status == MLLM_OK) status = take_memory(g, error);
  if (status == MLLM_OK) status = mllm_media_memory(g, error);
  if (status != MLLM_OK) {
    mllm_generator_destroy(g);
    return status;
  }
  *generator = g;
  return MLLM_OK;
}

mllm_status mllm_generator_share(mllm_generator *lender, mllm_generator **generator,
                                 mllm_error *error) {
  *generator = NULL;
  if (lender->prompt.cache < 0 || lender->from_sound || lender->prompt.reads_features)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_SHARED,
                     "what this model remembers of a conversation is not in its cache alone");
  mllm_generator *g = malloc(sizeof *g);
  if (g == NULL) return no_memory(error);
  *g = *lender;
  g->lender = lender;
  lender->takes_turns = g->takes_turns = true;
  g->cache = NULL;
  g->is_ready = false;
  g->speculation = (mllm_speculation){0};
  if (take_own(g)) {
    *generator = g;
    return MLLM_OK;
  }
  mllm_generator_destroy(g);
  return no_memory(error);
}

/* What no other conversation is lent. */
static void free_own(mllm_generator *g) {
  mllm_speculation_free(&g->speculation);
  free(g->memory.embeddings);
  free(g->ids);
  free(g->text);
  mllm_cache_destroy(g->cache);
}

void mllm_generator_destroy(mllm_generator *g) {
  if (g == NULL) return;
  free_own(g);
  if (g->lender != NULL) {
    free(g);
    return;
  }
  mllm_config_free(&g->config);
  mllm_feed_free(&g->prompt);
  mllm_feed_free(&g->decode);
  free(g->memory.ids);
  free(g->memory.positions);
  free(g->memory.ones);
  free(g->memory.inputs);
  free(g->memory.outputs);
  mllm_past_free(&g->memory.past);
  free(g->media);
  free(g->samples);
  free(g->encoded.data);
  free(g->suppressed);
  free(g->sampler.weights);
  free(g->sampler.order);
  free(g);
}

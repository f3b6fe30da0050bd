/* Pixels or sound through the encoder, and the projector where there is one. */
#include <stdlib.h>
#include <string.h>

#include "generator.h"
#include "status.h"

static mllm_status refuse(mllm_error *error, const char *why) {
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_INPUT, "%s", why);
}

/* An entry's first output in memory of our own: what follows the encoder keeps it across runs. */
static mllm_status own_output(const mllm_model *model, uint32_t entry, mllm_tensor *tensor,
                              size_t *taken, mllm_error *error) {
  mllm_tensor_info info;
  const mllm_status status = mllm_model_output(model, entry, 0, &info);
  if (status != MLLM_OK) return status;
  *tensor = (mllm_tensor){.name = info.name, .data = malloc((size_t)info.max_bytes)};
  *taken = (size_t)info.max_bytes;
  if (tensor->data != NULL) return MLLM_OK;
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for features");
}

/* Whether every input of an entry has a place where an earlier entry leaves it. */
static bool is_linked(const mllm_model *model, uint32_t entry, uint32_t input) {
  mllm_tensor_info info;
  return mllm_model_input(model, entry, input, &info) == MLLM_OK && info.arena_offset != UINT64_MAX;
}

static bool take_buffers(mllm_generator *g) {
  const mllm_config *c = &g->config;
  size_t media = 0;
  if (c->has_image) media = (size_t)3 * c->image.width * c->image.height;
  if (g->from_sound && c->has_audio) {
    media = (size_t)c->audio.mels * c->audio.frames;
    g->samples = calloc((size_t)c->audio.frames * c->audio.hop, sizeof *g->samples);
    if (g->samples == NULL) return false;
  }
  g->media = calloc(media + 1, sizeof *g->media);
  return g->media != NULL;
}

mllm_status mllm_media_memory(mllm_generator *g, mllm_error *error) {
  if (g->encoder == MLLM_NO_TOKEN) return MLLM_OK;
  if (g->from_sound ? !g->config.has_audio : !g->config.has_image)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CONFIG,
                     "config.json does not say how the encoder's input is made");
  if (!take_buffers(g))
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for pixels or sound");
  if (g->from_sound) return MLLM_OK; /* the decoder reads the encoder's output in its place */
  if (g->projector == MLLM_NO_TOKEN || is_linked(g->model, g->projector, 0)) return MLLM_OK;
  return own_output(g->model, g->encoder, &g->encoded, &g->encoded_bytes, error);
}

/* Runs an entry on the source, or on what lies in the arena; output NULL: there it goes, too. */
static mllm_status run_one(mllm_generator *g, uint32_t entry, mllm_tensor *output,
                           mllm_error *error) {
  return mllm_run(g->session, entry, &g->source, g->source.data != NULL, output, output != NULL,
                  error);
}

static uint32_t last_entry(const mllm_generator *g) {
  return g->projector == MLLM_NO_TOKEN ? g->encoder : g->projector;
}

mllm_status mllm_place_features(mllm_generator *g, mllm_error *error) {
  if (g->features.rank == 0 || g->image_at == MLLM_NO_TOKEN) return MLLM_OK;
  const size_t width = g->prompt.width;
  g->features.data = g->memory.embeddings + g->image_at * width;
  g->features.bytes = (size_t)g->features.dims[1] * width * sizeof(float);
  return run_one(g, last_entry(g), &g->features, error);
}

mllm_status mllm_bound_features(mllm_generator *g, mllm_error *error) {
  mllm_tensor_info info = {0};
  if (g->encoder == MLLM_NO_TOKEN) return refuse(error, "the model takes no image");
  const mllm_status status = mllm_model_output(g->model, last_entry(g), 0, &info);
  if (status != MLLM_OK) return status;
  g->features = (mllm_tensor){.rank = info.rank};
  for (uint32_t i = 0; i < info.rank; i++)
    g->features.dims[i] = mllm_dim_bound(g->model, &info, i);
  if (info.rank == 3 && g->features.dims[1] > 0) return MLLM_OK;
  return refuse(error, "it is not known how many rows an image takes");
}

/* What the last entry will give. */
static mllm_status describe_features(mllm_generator *g, mllm_error *error) {
  g->features = (mllm_tensor){0};
  return mllm_run_shapes(g->session, last_entry(g), &g->source, g->source.data != NULL,
                         &g->features, 1, error);
}

static mllm_status encode_image(mllm_generator *g, const mllm_prompt *prompt, mllm_error *error) {
  const mllm_image_config *c = &g->config.image;
  mllm_frame frame;
  mllm_status status = mllm_frame_of(prompt, &frame, error);
  if (status == MLLM_OK) status = mllm_image_prepare(&frame, c, g->media, error);
  if (status != MLLM_OK) return status;
  g->source = (mllm_tensor){.data = g->media,
                            .bytes = (size_t)3 * c->width * c->height * sizeof(float),
                            .dtype = MLLM_F32,
                            .rank = 4,
                            .dims = {1, 3, c->height, c->width}};
  if (g->projector != MLLM_NO_TOKEN) {
    mllm_tensor *encoded = g->encoded.data == NULL ? NULL : &g->encoded;
    if (encoded != NULL) encoded->bytes = g->encoded_bytes;
    status = run_one(g, g->encoder, encoded, error);
    if (status != MLLM_OK) return status;
    g->source = g->encoded;
    g->source.name = NULL; /* by place: the names of the two ends differ */
  }
  return g->prompt.reads_features ? run_one(g, last_entry(g), NULL, error)
                                  : describe_features(g, error);
}

static mllm_status encode_sound(mllm_generator *g, const mllm_prompt *prompt, mllm_error *error) {
  const mllm_audio_config *c = &g->config.audio;
  if (prompt->rate < 1000 || prompt->rate > 384000 || prompt->n_samples == 0)
    return refuse(error, "the sound is empty, or its sample rate is out of range");
  mllm_resample(prompt->samples, prompt->n_samples, prompt->rate, c->rate, g->samples,
                (size_t)c->frames * c->hop);
  const mllm_status status = mllm_log_mel(c, g->samples, g->media, error);
  if (status != MLLM_OK) return status;
  g->source = (mllm_tensor){.data = g->media,
                            .bytes = (size_t)c->mels * c->frames * sizeof(float),
                            .dtype = MLLM_F32,
                            .rank = 3,
                            .dims = {1, c->mels, c->frames}};
  return run_one(g, g->encoder, NULL, error);
}

mllm_status mllm_encode_media(mllm_generator *g, const mllm_prompt *prompt, mllm_error *error) {
  if (g->from_sound && prompt->samples == NULL)
    return refuse(error, "the model listens: give it sound");
  if (!g->from_sound && prompt->samples != NULL) return refuse(error, "the model takes no sound");
  const bool shows = mllm_shows(prompt);
  if (g->from_sound && shows) return refuse(error, "the model takes no image");
  const bool attends = g->prompt.reads_features && g->encoder != MLLM_NO_TOKEN && !g->from_sound;
  const bool places = g->embed != MLLM_NO_TOKEN && g->encoder != MLLM_NO_TOKEN;
  if (shows && !attends && !places) return refuse(error, "the model takes no image");
  if (!shows && attends)
    return refuse(error, "the model attends to an image: give it one");
  if (shows) return encode_image(g, prompt, error);
  return g->from_sound ? encode_sound(g, prompt, error) : MLLM_OK;
}

/* Image and sound files for a prompt. */
#include <stdlib.h>

#include "audio.h"
#include "image.h"
#include "status.h"

struct mllm_media {
  mllm_mapping file;
  float *samples; /* owned; NULL for an image */
};

static mllm_status open_file(const char *path, mllm_media **media, mllm_error *error) {
  *media = NULL;
  mllm_clear(error);
  mllm_media *opened = calloc(1, sizeof *opened);
  if (opened == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a file");
  const mllm_status status = mllm_map_file(path, &opened->file, error);
  if (status != MLLM_OK) {
    free(opened);
    return status;
  }
  mllm_locate(error, path, NULL);
  *media = opened;
  return MLLM_OK;
}

/* Ends an opening: on failure nothing stays open. */
static mllm_status close_on_failure(mllm_status status, mllm_media **media, mllm_error *error) {
  if (status == MLLM_OK) {
    mllm_clear(error);
    return status;
  }
  mllm_media_close(*media);
  *media = NULL;
  return status;
}

mllm_status mllm_media_open_image(const char *path, mllm_prompt *prompt, mllm_media **media,
                                  mllm_error *error) {
  mllm_status status = open_file(path, media, error);
  if (status != MLLM_OK) return status;
  mllm_frame image;
  status = mllm_image_parse((*media)->file.bytes, (*media)->file.size, &image, error);
  if (status == MLLM_OK) {
    prompt->rgb = image.planes[0];
    prompt->width = image.width;
    prompt->height = image.height;
  }
  return close_on_failure(status, media, error);
}

mllm_status mllm_media_open_audio(const char *path, mllm_prompt *prompt, mllm_media **media,
                                  mllm_error *error) {
  mllm_status status = open_file(path, media, error);
  if (status != MLLM_OK) return status;
  mllm_wav wav;
  status = mllm_wav_parse((*media)->file.bytes, (*media)->file.size, &wav, error);
  if (status == MLLM_OK) {
    (*media)->samples = malloc((wav.frames + 1) * sizeof(float));
    if ((*media)->samples == NULL)
      status = mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for the sound");
  }
  if (status == MLLM_OK) {
    mllm_wav_read(&wav, wav.rate, (*media)->samples, wav.frames);
    prompt->samples = (*media)->samples;
    prompt->n_samples = wav.frames;
    prompt->rate = wav.rate;
  }
  return close_on_failure(status, media, error);
}

void mllm_media_close(mllm_media *media) {
  if (media == NULL) return;
  free(media->samples);
  mllm_unmap(&media->file);
  free(media);
}

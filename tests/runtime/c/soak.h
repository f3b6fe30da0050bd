/* What the long runs share: an open bundle, questions whose answers are known, and figures. */
#ifndef SOAK_H
#define SOAK_H

#include <stdint.h>

#include "mllm.h"
#include "mllm_schedule.h"

typedef struct soak {
  mllm_bundle *bundle;
  mllm_model *model;
  mllm_session *session;
  mllm_generator *generator;
} soak;

/* A question and the digest of its answer, when it is asked alone. */
typedef struct question {
  char text[4096];
  mllm_prompt prompt;
  mllm_generate_options options;
  uint64_t answer;
} question;

/* Ends the program with the error's line. */
void soak_must(mllm_status status, const mllm_error *error);
void soak_open(soak *s, const char *path);
void soak_close(soak *s);

uint64_t soak_random(uint64_t *state);
/* Fills a question with up to `words` words, greedy or drawn, sometimes with guesses. */
void soak_ask(question *q, uint32_t words, uint32_t fewest, uint32_t most, uint64_t *state);
/* Asks it alone and notes the answer; an allocation while it decodes ends the process. */
void soak_answer(soak *s, question *q);

enum { SOAK_EMPTY = 1469598103u };
/* The digest of an answer with one more token. */
uint64_t soak_add(uint64_t digest, uint32_t token);

/* Bytes of this process that are in memory now. */
uint64_t soak_resident(void);

#endif

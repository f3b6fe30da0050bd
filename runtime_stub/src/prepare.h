/* A thread that prepares the prompt of one conversation while others run: features of an image, ids
 * and embeddings, in a session of its own, so that chunks are there when their turns come. */
#ifndef MLLM_PREPARE_H
#define MLLM_PREPARE_H

#include "generator.h"

typedef struct mllm_preparer mllm_preparer;

mllm_status mllm_preparer_create(const mllm_generator *lender, mllm_preparer **preparer,
                                 mllm_error *error);
/* Waits for what is being prepared. NULL is no fault. */
void mllm_preparer_destroy(mllm_preparer *preparer);

/* Begins with an opened conversation; false: there is another one that was not taken yet. */
bool mllm_preparer_offer(mllm_preparer *preparer, mllm_generator *generator,
                         const mllm_prompt *prompt);

/* The conversation that is prepared, or that could not be, as *error tells; NULL: none is yet. Where
 * one was begun, `wait` waits for it. */
mllm_generator *mllm_preparer_take(mllm_preparer *preparer, bool wait, mllm_error *error);

#endif

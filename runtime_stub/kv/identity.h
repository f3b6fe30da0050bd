/* identity.h - by what a file knows the model whose keys and values it has. */
#ifndef MLLM_KV_IDENTITY_H
#define MLLM_KV_IDENTITY_H

#include "../src/model.h"
#include "layout.h"

/* A digest of shape, formats and scales of a cache, and of the model's weights: all of them up to a
 * MiB, else 256 parts of them that lie evenly. False: there is no libcrypto, or no memory. */
bool mllm_kv_identity(const mllm_model *model, const mllm_kv_layout *layout, uint8_t identity[32]);

#endif /* MLLM_KV_IDENTITY_H */

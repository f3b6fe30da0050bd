/* Bytes that only the owner of a key can read, and that nobody can change unseen: AES-256-GCM (NIST
 * SP 800-38D), by the system's libcrypto where the build found it. */
#ifndef MLLM_SEAL_H
#define MLLM_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MLLM_SEAL_KEY_BYTES = 32, MLLM_SEAL_NONCE_BYTES = 12, MLLM_SEAL_TAG_BYTES = 16 };

/* What stands beside sealed bytes. */
typedef struct mllm_seal {
  uint8_t nonce[MLLM_SEAL_NONCE_BYTES];
  uint8_t tag[MLLM_SEAL_TAG_BYTES];
} mllm_seal;

/* Bytes that nobody can guess; false: there are none. */
bool mllm_draw_bytes(void *bytes, size_t size);

/* Turns bytes[size] into sealed ones, under a nonce that is drawn; `bound` is not sealed, but
 * without it they do not open. */
bool mllm_seal_bytes(const uint8_t key[MLLM_SEAL_KEY_BYTES], const void *bound, size_t bound_bytes,
                     unsigned char *bytes, size_t size, mllm_seal *seal);

typedef enum mllm_unsealed {
  MLLM_UNSEALED,
  MLLM_SEAL_BROKEN, /* key, seal, bound or bytes are not what they were; bytes mean nothing */
  MLLM_SEAL_UNREAD  /* there is no memory to tell */
} mllm_unsealed;

/* Turns them back. */
mllm_unsealed mllm_unseal_bytes(const uint8_t key[MLLM_SEAL_KEY_BYTES], const void *bound,
                                size_t bound_bytes, unsigned char *bytes, size_t size,
                                const mllm_seal *seal);

#endif /* MLLM_SEAL_H */

/* seal.c - AES-256-GCM by libcrypto. */
#include "seal.h"

#ifdef MLLM_HAVE_LIBCRYPTO

#include <openssl/evp.h>
#include <openssl/rand.h>

enum { MOST = 1 << 30 /* bytes of a call, which counts them as an int */ };

bool mllm_draw_bytes(void *bytes, size_t size) {
  return size <= MOST && RAND_bytes(bytes, (int)size) == 1;
}

/* All bytes in place; the context knows which way. */
static bool pass(EVP_CIPHER_CTX *context, const void *bound, size_t bound_bytes,
                 unsigned char *bytes, size_t size) {
  int done = 0;
  if (bound_bytes > MOST) return false;
  if (EVP_CipherUpdate(context, NULL, &done, bound, (int)bound_bytes) != 1) return false;
  while (size > 0) {
    const int part = size < MOST ? (int)size : MOST;
    if (EVP_CipherUpdate(context, bytes, &done, bytes, part) != 1 || done != part) return false;
    bytes += part;
    size -= (size_t)part;
  }
  return true;
}

bool mllm_seal_bytes(const uint8_t key[MLLM_SEAL_KEY_BYTES], const void *bound, size_t bound_bytes,
                     unsigned char *bytes, size_t size, mllm_seal *seal) {
  EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
  unsigned char rest[MLLM_SEAL_TAG_BYTES];
  int done = 0;
  const bool good =
      context != NULL && mllm_draw_bytes(seal->nonce, sizeof seal->nonce) &&
      EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, key, seal->nonce, 1) == 1 &&
      pass(context, bound, bound_bytes, bytes, size) &&
      EVP_CipherFinal_ex(context, rest, &done) == 1 &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, (int)sizeof seal->tag, seal->tag) == 1;
  EVP_CIPHER_CTX_free(context);
  return good;
}

mllm_unsealed mllm_unseal_bytes(const uint8_t key[MLLM_SEAL_KEY_BYTES], const void *bound,
                                size_t bound_bytes, unsigned char *bytes, size_t size,
                                const mllm_seal *seal) {
  EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
  mllm_seal copy = *seal; /* libcrypto takes no pointer to const */
  unsigned char rest[MLLM_SEAL_TAG_BYTES];
  int done = 0;
  mllm_unsealed found = MLLM_SEAL_UNREAD;
  if (context != NULL &&
      EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, key, copy.nonce, 0) == 1 &&
      pass(context, bound, bound_bytes, bytes, size) &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, (int)sizeof copy.tag, copy.tag) == 1) {
    const bool good = EVP_CipherFinal_ex(context, rest, &done) == 1;
    found = good ? MLLM_UNSEALED : MLLM_SEAL_BROKEN;
  }
  EVP_CIPHER_CTX_free(context);
  return found;
}

#else

bool mllm_draw_bytes(void *bytes, size_t size) {
  (void)bytes;
  (void)size;
  return false;
}

bool mllm_seal_bytes(const uint8_t key[MLLM_SEAL_KEY_BYTES], const void *bound, size_t bound_bytes,
                     unsigned char *bytes, size_t size, mllm_seal *seal) {
  (void)key;
  (void)bound;
  (void)bound_bytes;
  (void)bytes;
  (void)size;
  (void)seal;
  return false;
}

mllm_unsealed mllm_unseal_bytes(const uint8_t key[MLLM_SEAL_KEY_BYTES], const void *bound,
                                size_t bound_bytes, unsigned char *bytes, size_t size,
                                const mllm_seal *seal) {
  (void)key;
  (void)bound;
  (void)bound_bytes;
  (void)bytes;
  (void)size;
  (void)seal;
  return MLLM_SEAL_UNREAD;
}

#endif

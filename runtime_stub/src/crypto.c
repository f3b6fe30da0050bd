#include "crypto.h"

uint32_t mllm_crc32(const uint8_t *bytes, size_t size) {
  uint32_t table[16]; /* of half bytes: built in no time, and manifests are small */
  for (uint32_t i = 0; i < 16; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 4; bit++) value = value >> 1 ^ (0xEDB88320u & (0u - (value & 1)));
    table[i] = value;
  }
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}

#ifdef MLLM_HAVE_LIBCRYPTO

#include <openssl/evp.h>

bool mllm_crypto_available(void) { return true; }

bool mllm_sha256(const void *bytes, size_t size, uint8_t digest[MLLM_SHA256_BYTES]) {
  unsigned int written = 0;
  return EVP_Digest(bytes, size, digest, &written, EVP_sha256(), NULL) == 1 &&
         written == MLLM_SHA256_BYTES;
}

bool mllm_ed25519_signs(const uint8_t key[MLLM_KEY_BYTES],
                        const uint8_t signature[MLLM_SIGNATURE_BYTES], const void *bytes,
                        size_t size) {
  EVP_PKEY *public_key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, MLLM_KEY_BYTES);
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  const bool good = public_key != NULL && context != NULL &&
                    EVP_DigestVerifyInit(context, NULL, NULL, NULL, public_key) == 1 &&
                    EVP_DigestVerify(context, signature, MLLM_SIGNATURE_BYTES, bytes, size) == 1;
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(public_key);
  return good;
}

#else

bool mllm_crypto_available(void) { return false; }

bool mllm_sha256(const void *bytes, size_t size, uint8_t digest[MLLM_SHA256_BYTES]) {
  (void)bytes;
  (void)size;
  (void)digest;
  return false;
}

bool mllm_ed25519_signs(const uint8_t key[MLLM_KEY_BYTES],
                        const uint8_t signature[MLLM_SIGNATURE_BYTES], const void *bytes,
                        size_t size) {
  (void)key;
  (void)signature;
  (void)bytes;
  (void)size;
  return false;
}

#endif

/* Digests and signatures, by the system's libcrypto where the build found it (MLLM_HAVE_LIBCRYPTO). */
#ifndef MLLM_CRYPTO_H
#define MLLM_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MLLM_SHA256_BYTES = 32, MLLM_KEY_BYTES = 32, MLLM_SIGNATURE_BYTES = 64 };

/* Whether this build can verify anything. Without, the two functions below answer false. */
bool mllm_crypto_available(void);

bool mllm_sha256(const void *bytes, size_t size, uint8_t digest[MLLM_SHA256_BYTES]);

/* Whether `signature` is the Ed25519 signature of the bytes by the owner of the public key. */
bool mllm_ed25519_signs(const uint8_t key[MLLM_KEY_BYTES],
                        const uint8_t signature[MLLM_SIGNATURE_BYTES], const void *bytes,
                        size_t size);

/* The CRC-32 of zip archives. */
uint32_t mllm_crc32(const uint8_t *bytes, size_t size);

#endif

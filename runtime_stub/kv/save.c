/* save.c - a conversation to a file and back: a head, then its pages, sealed each. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/bundle.h"
#include "../src/cache.h"
#include "../src/replace_file.h"
#include "../src/status.h"
#include "identity.h"
#include "sealed_page.h"

enum { VERSION = 1 };

static const uint8_t magic[8] = {'M', 'L', 'L', 'M', 'T', 'A', 'L', 'K'};

/* How a file begins; sealed, so that nobody can change it, but not secret. */
typedef struct head {
  uint8_t magic[8];
  uint32_t version;
  uint32_t tokens;
  uint32_t capacity;
  uint32_t pages;
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t page_tokens;
  uint8_t whole[32]; /* drawn: pages are bound to it */
  uint8_t identity[32];
  char name[64];
} head;

static uint32_t pages_of(uint32_t tokens, uint32_t page_tokens) {
  return tokens / page_tokens + (tokens % page_tokens != 0);
}

static mllm_status no_crypto(mllm_error *error) {
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_NO_CRYPTO,
                   "this build of the runtime has no libcrypto to seal a conversation with");
}

static mllm_status no_memory(mllm_error *error) {
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to seal a conversation");
}

static bool describe(const mllm_model *model, const mllm_kv_cache *kv, head *h) {
  *h = (head){.version = VERSION,
              .tokens = kv->length,
              .capacity = kv->capacity,
              .pages = pages_of(kv->length, kv->layout.page_tokens),
              .layers = kv->layout.layers,
              .kv_heads = kv->layout.kv_heads,
              .head_dim = kv->layout.head_dim,
              .page_tokens = kv->layout.page_tokens};
  memcpy(h->magic, magic, sizeof magic);
  strncpy(h->name, kv->info.name, sizeof h->name - 1);
  return mllm_kv_identity(model, &kv->layout, h->identity) &&
         mllm_draw_bytes(h->whole, sizeof h->whole);
}

static mllm_status write_all(mllm_replacing *file, const mllm_kv_cache *kv, const head *h,
                             const uint8_t *key, unsigned char *bytes, mllm_error *error) {
  mllm_seal seal;
  if (!mllm_seal_bytes(key, h, sizeof *h, bytes, 0, &seal)) return no_memory(error);
  mllm_status status = mllm_replace_write(file, h, sizeof *h, error);
  if (status == MLLM_OK) status = mllm_replace_write(file, &seal, sizeof seal, error);
  for (uint32_t block = 0; status == MLLM_OK && block < h->pages; block++) {
    mllm_kv_page_head page;
    if (!mllm_kv_seal_block(kv, block, key, h->whole, &page, bytes)) return no_memory(error);
    status = mllm_replace_write(file, &page, sizeof page, error);
    if (status != MLLM_OK) return status;
    status = mllm_replace_write(file, bytes, kv->layout.bytes[page.state], error);
  }
  return status;
}

mllm_status mllm_cache_save(const mllm_cache *cache, const char *path,
                            const uint8_t key[MLLM_CACHE_KEY_BYTES], mllm_error *error) {
  mllm_clear(error);
  if (!mllm_crypto_available()) return no_crypto(error);
  const mllm_kv_cache *kv = &cache->kv;
  mllm_status status = mllm_kv_cache_ready(kv, error);
  if (status != MLLM_OK) return status;
  unsigned char *bytes = malloc(kv->layout.bytes[MLLM_KV_NATIVE]);
  head h;
  if (bytes == NULL || !describe(cache->model, kv, &h)) {
    free(bytes);
    return no_memory(error);
  }
  mllm_replacing file;
  status = mllm_replace_begin(path, &file, error);
  if (status == MLLM_OK) {
    status = write_all(&file, kv, &h, key, bytes, error);
    status = mllm_replace_end(&file, status, error);
  }
  free(bytes);
  return status;
}

static mllm_status is_changed(mllm_error *error) {
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_SEALED,
                   "the conversation was changed or cut, or has another key");
}

/* After a read that gave less than all. */
static mllm_status is_short(mllm_error *error) {
  if (errno == 0) return is_changed(error);
  return mllm_fail(error, MLLM_IO, MLLM_CODE_STORAGE, "the conversation cannot be read: %s",
                   strerror(errno));
}

static mllm_status is_other(const mllm_kv_pool *pool, const head *h, mllm_error *error) {
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_OTHER,
                   "this is of another model's cache '%.64s', %u layers of %u heads of %u in pages "
                   "of %u tokens, not of '%s', %u layers of %u heads of %u in pages of %u tokens",
                   h->name, h->layers, h->kv_heads, h->head_dim, h->page_tokens, pool->info.name,
                   pool->info.layers, pool->info.kv_heads, pool->info.head_dim,
                   pool->info.page_tokens);
}

/* Reads the head, and believes it only when its seal opens. */
static mllm_status read_head(int file, const mllm_kv_pool *pool, const uint8_t *key, head *h,
                             mllm_error *error) {
  mllm_seal seal;
  uint8_t identity[32];
  if (!mllm_read_all(file, h, sizeof *h)) return is_short(error);
  if (memcmp(h->magic, magic, sizeof magic) != 0) return is_changed(error);
  if (h->version != VERSION)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_OTHER,
                     "the conversation is of version %u, this build reads %u", h->version, VERSION);
  if (!mllm_read_all(file, &seal, sizeof seal)) return is_short(error);
  unsigned char nothing[1];
  const mllm_unsealed found = mllm_unseal_bytes(key, h, sizeof *h, nothing, 0, &seal);
  if (found == MLLM_SEAL_BROKEN) return is_changed(error);
  if (found == MLLM_SEAL_UNREAD) return no_memory(error);
  if (!mllm_kv_identity(pool->model, &pool->layout, identity)) return no_memory(error);
  const bool same = memcmp(h->identity, identity, sizeof identity) == 0 &&
                    strncmp(h->name, pool->info.name, sizeof h->name - 1) == 0;
  return same ? MLLM_OK : is_other(pool, h, error);
}

static mllm_status is_full(const mllm_kv_pool *pool, const head *h, mllm_error *error) {
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_CACHE,
                   "the pool of cache '%s' has no room for the %u tokens of a conversation",
                   pool->info.name, h->tokens);
}

/* Reads the next page into the pool and opens it there. */
static mllm_status read_page(int file, mllm_kv_cache *kv, uint32_t block, const uint8_t *key,
                             const head *h, mllm_error *error) {
  mllm_kv_pool *pool = kv->pool;
  mllm_kv_page_head page;
  if (!mllm_read_all(file, &page, sizeof page)) return is_short(error);
  if (!mllm_kv_head_is_possible(&kv->layout, &page)) return is_changed(error);
  const uint32_t number = mllm_kv_page_take(pool, (mllm_kv_state)page.state);
  if (number == MLLM_KV_NO_PAGE) return is_full(pool, h, error);
  kv->blocks[block] = number;
  mllm_kv_entry_of(pool, number)->is_rounded = page.rounded != 0;
  unsigned char *bytes = mllm_kv_page_bytes_of(pool, number);
  if (!mllm_read_all(file, bytes, kv->layout.bytes[page.state])) return is_short(error);
  switch (mllm_kv_open_block(&kv->layout, block, key, h->whole, &page, bytes)) {
    case MLLM_UNSEALED: return MLLM_OK;
    case MLLM_SEAL_BROKEN: return is_changed(error);
    case MLLM_SEAL_UNREAD: break;
  }
  return no_memory(error);
}

static mllm_status read_pages(int file, mllm_kv_cache *kv, const uint8_t *key, const head *h,
                              mllm_error *error) {
  mllm_status status = MLLM_OK;
  for (uint32_t block = 0; status == MLLM_OK && block < h->pages; block++) {
    status = read_page(file, kv, block, key, h, error);
  }
  char more;
  if (status == MLLM_OK && mllm_read_all(file, &more, 1)) return is_changed(error);
  kv->length = h->tokens;
  kv->written = h->tokens;
  return status;
}

mllm_status mllm_cache_restore(mllm_kv_pool *pool, const char *path,
                               const uint8_t key[MLLM_CACHE_KEY_BYTES], mllm_cache **made,
                               mllm_error *error) {
  mllm_clear(error);
  *made = NULL;
  if (!mllm_crypto_available()) return no_crypto(error);
  mllm_locate(error, path, NULL);
  errno = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return is_short(error);
  head h = {0};
  mllm_kv_cache kv = {0};
  mllm_status status = read_head(file, pool, key, &h, error);
  if (status == MLLM_OK) status = mllm_kv_cache_create_in(&kv, pool, h.capacity, error);
  const bool fits =
      h.tokens <= kv.capacity && h.pages == pages_of(h.tokens, pool->info.page_tokens);
  if (status == MLLM_OK && !fits) status = is_changed(error);
  if (status == MLLM_OK) status = read_pages(file, &kv, key, &h, error);
  (void)close(file);
  if (status == MLLM_OK) return mllm_cache_hand_out(pool->model, pool->index, &kv, made, error);
  mllm_kv_cache_free(&kv);
  return status;
}

/* spill.c - pages to the pool's file and back. */
#define _GNU_SOURCE
#include "spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/bundle.h"
#include "../src/replace_file.h"
#include "../src/status.h"

/* A file that has no name: with the process it is gone. */
static int open_unnamed(const char *folder) {
  int file = -1;
#ifdef O_TMPFILE
  file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
#endif
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/mllm-spill-XXXXXX", folder);
  if (length < 0 || (size_t)length >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  file = mkstemp(path);
  if (file >= 0) {
    (void)unlink(path);
    (void)fcntl(file, F_SETFD, FD_CLOEXEC);
  }
  return file;
}

void mllm_kv_spill_free(mllm_kv_spill *spill) {
  if (spill == NULL) return;
  if (spill->file >= 0) (void)close(spill->file);
  free(spill->bytes);
  free(spill->slots);
  free(spill);
}

static mllm_status make(const mllm_kv_pool *pool, const char *folder, uint64_t most_bytes,
                        mllm_kv_spill *spill, mllm_error *error) {
  const size_t slot_bytes = pool->layout.bytes[MLLM_KV_NATIVE];
  const uint64_t slots = most_bytes / slot_bytes;
  spill->slot_bytes = slot_bytes;
  spill->n_slots = slots < MLLM_KV_NO_SLOT ? (uint32_t)slots : MLLM_KV_NO_SLOT - 1;
  spill->first_free = MLLM_KV_NO_SLOT;
  spill->bytes = malloc(slot_bytes);
  spill->slots = calloc((size_t)spill->n_slots + 1, sizeof *spill->slots);
  if (spill->bytes == NULL || spill->slots == NULL ||
      !mllm_draw_bytes(spill->key, sizeof spill->key)) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                     "no memory for %u pages in a file", spill->n_slots);
  }
  spill->file = open_unnamed(folder);
  if (spill->file >= 0) return MLLM_OK;
  mllm_locate(error, folder, NULL);
  return mllm_fail(error, MLLM_IO, MLLM_CODE_STORAGE, "no file for pages can be made: %s",
                   strerror(errno));
}

mllm_status mllm_kv_pool_set_spill(mllm_kv_pool *pool, const char *folder, uint64_t most_bytes,
                                   mllm_error *error) {
  mllm_clear(error);
  if (pool->spill != NULL && pool->spill->used > 0)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ASLEEP,
                     "%u pages of conversations that sleep are in the pool's file",
                     pool->spill->used);
  mllm_kv_spill *made = NULL;
  if (folder != NULL) {
    if (!mllm_crypto_available())
      return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_NO_CRYPTO,
                       "this build of the runtime has no libcrypto to seal pages with");
    made = calloc(1, sizeof *made);
    if (made == NULL)
      return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                       "no memory for a file of pages");
    made->file = -1;
    const mllm_status status = make(pool, folder, most_bytes, made, error);
    if (status != MLLM_OK) {
      mllm_kv_spill_free(made);
      return status;
    }
  }
  mllm_kv_spill_free(pool->spill);
  pool->spill = made;
  return MLLM_OK;
}

uint32_t mllm_kv_spill_room(const mllm_kv_pool *pool) {
  return pool->spill == NULL ? 0 : pool->spill->n_slots - pool->spill->used;
}

static uint32_t take_slot(mllm_kv_spill *spill) {
  const uint32_t slot = spill->first_free;
  if (slot == MLLM_KV_NO_SLOT && spill->begun == spill->n_slots) return MLLM_KV_NO_SLOT;
  spill->used++;
  if (slot == MLLM_KV_NO_SLOT) return spill->begun++;
  spill->first_free = spill->slots[slot].next;
  return slot;
}

static void release_slot(mllm_kv_pool *pool, uint32_t slot) {
  mllm_kv_spill *spill = pool->spill;
  spill->slots[slot].next = spill->first_free;
  spill->first_free = slot;
  spill->used--;
}

/* Whether all bytes went through; else errno says why, 0 that there are fewer. */
static bool transfer(int file, bool writes, unsigned char *bytes, size_t size, off_t at) {
  while (size > 0) {
    const ssize_t done = writes ? pwrite(file, bytes, size, at) : pread(file, bytes, size, at);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = writes ? ENOSPC : 0;
    if (done <= 0) return false;
    bytes += done;
    at += done;
    size -= (size_t)done;
  }
  return true;
}

static void bind(const mllm_kv_cache *cache, uint8_t whole[32]) {
  memset(whole, 0, 32);
  memcpy(whole, &cache->spilled, sizeof cache->spilled);
}

static mllm_status write_block(mllm_kv_cache *cache, uint32_t block, mllm_error *error) {
  mllm_kv_spill *spill = cache->pool->spill;
  const uint32_t slot = take_slot(spill);
  if (slot == MLLM_KV_NO_SLOT)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_STORAGE,
                     "the file for pages has room for %u, which are there", spill->n_slots);
  cache->slots[block] = slot;
  uint8_t whole[32];
  bind(cache, whole);
  mllm_kv_page_head *head = &spill->slots[slot].head;
  if (!mllm_kv_seal_block(cache, block, spill->key, whole, head, spill->bytes))
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to seal a page");
  const size_t size = cache->layout.bytes[head->state];
  if (transfer(spill->file, true, spill->bytes, size, (off_t)(slot * (uint64_t)spill->slot_bytes)))
    return MLLM_OK;
  return mllm_fail(error, MLLM_IO, MLLM_CODE_STORAGE, "a page cannot be stored: %s",
                   strerror(errno));
}

/* What is in memory and in the file too: gives one of them back. From the last block on, so that
 * the next page takes the first of the places that come free, which the disk has already given. */
static void settle(mllm_kv_cache *cache, bool keeps_file, bool is_woken) {
  mllm_kv_pool *pool = cache->pool;
  for (uint32_t i = cache->pages; i-- > 0;) {
    if (cache->blocks[i] == MLLM_KV_NO_PAGE || cache->slots[i] == MLLM_KV_NO_SLOT) continue;
    const size_t bytes = cache->layout.bytes[pool->spill->slots[cache->slots[i]].head.state];
    if (keeps_file) {
      mllm_kv_page_release(pool, cache->blocks[i]);
      cache->blocks[i] = MLLM_KV_NO_PAGE;
      pool->counted.spilled_pages++;
      pool->counted.spilled_bytes += bytes;
    } else {
      pool->counted.woken_pages += is_woken;
      pool->counted.woken_bytes += is_woken ? bytes : 0;
      release_slot(pool, cache->slots[i]);
      cache->slots[i] = MLLM_KV_NO_SLOT;
    }
  }
}

static void wake_up(mllm_kv_cache *cache) {
  free(cache->slots);
  cache->slots = NULL;
  cache->state = MLLM_CACHE_AWAKE;
}

/* Makes room to name slots, where there is none yet. */
static bool begin_sleep(mllm_kv_cache *cache) {
  if (cache->slots != NULL) return true;
  cache->slots = malloc(cache->pages * sizeof *cache->slots);
  if (cache->slots == NULL) return false;
  for (uint32_t i = 0; i < cache->pages; i++) cache->slots[i] = MLLM_KV_NO_SLOT;
  cache->spilled = ++cache->pool->spill->serials;
  return true;
}

mllm_status mllm_kv_cache_spill(mllm_kv_cache *cache, bool shared, mllm_error *error) {
  if (cache->state == MLLM_CACHE_DROPPED || cache->written == 0) return MLLM_OK;
  if (cache->pool->spill == NULL)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_STORAGE,
                     "the pool of cache '%s' has no file for pages", cache->info.name);
  if (!begin_sleep(cache))
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to spill a cache");
  mllm_status status = MLLM_OK;
  for (uint32_t i = 0; status == MLLM_OK && i < cache->pages; i++) {
    const uint32_t page = cache->blocks[i];
    if (page == MLLM_KV_NO_PAGE) continue;
    if (!shared && mllm_kv_page_holders(cache->pool, page) > 1) continue;
    status = write_block(cache, i, error);
  }
  const bool was_awake = cache->state == MLLM_CACHE_AWAKE;
  settle(cache, status == MLLM_OK, false);
  cache->state = MLLM_CACHE_SLEEPING;
  if (status != MLLM_OK && was_awake) wake_up(cache);
  return status;
}

/* Takes a page and fills it; *is_lost: the file does not have what was written. */
static mllm_status read_block(mllm_kv_cache *cache, uint32_t block, bool *is_lost,
                              mllm_error *error) {
  mllm_kv_pool *pool = cache->pool;
  const uint32_t slot = cache->slots[block];
  const mllm_kv_page_head *head = &pool->spill->slots[slot].head;
  const uint32_t page = mllm_kv_page_take(pool, (mllm_kv_state)head->state);
  if (page == MLLM_KV_NO_PAGE)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_CACHE,
                     "the pool of cache '%s' has no room for the %u tokens of a conversation that "
                     "sleeps", cache->info.name, cache->written);
  cache->blocks[block] = page;
  mllm_kv_entry_of(pool, page)->is_rounded = head->rounded != 0;
  unsigned char *bytes = mllm_kv_page_bytes_of(pool, page);
  const size_t size = cache->layout.bytes[head->state];
  uint8_t whole[32];
  bind(cache, whole);
  const off_t at = (off_t)(slot * (uint64_t)pool->spill->slot_bytes);
  const bool whole_page = transfer(pool->spill->file, false, bytes, size, at);
  if (!whole_page && errno != 0)
    return mllm_fail(error, MLLM_IO, MLLM_CODE_STORAGE, "a page cannot be read: %s",
                     strerror(errno));
  mllm_unsealed found = MLLM_SEAL_BROKEN;
  if (whole_page)
    found = mllm_kv_open_block(&cache->layout, block, pool->spill->key, whole, head, bytes);
  if (found == MLLM_UNSEALED) return MLLM_OK;
  if (found == MLLM_SEAL_UNREAD)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to open a page");
  *is_lost = true;
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_SEALED,
                   "the file for pages was changed: the %u tokens of a conversation of cache '%s' "
                   "are lost", cache->written, cache->info.name);
}

/* Gives back the pages of blocks that have a slot. */
static void give_back_read(mllm_kv_cache *cache) {
  for (uint32_t i = 0; i < cache->pages; i++) {
    if (cache->slots[i] == MLLM_KV_NO_SLOT || cache->blocks[i] == MLLM_KV_NO_PAGE) continue;
    mllm_kv_page_release(cache->pool, cache->blocks[i]);
    cache->blocks[i] = MLLM_KV_NO_PAGE;
  }
}

mllm_status mllm_kv_cache_wake(mllm_kv_cache *cache, mllm_error *error) {
  if (cache->state == MLLM_CACHE_AWAKE) return MLLM_OK;
  if (cache->state == MLLM_CACHE_DROPPED) return mllm_kv_cache_ready(cache, error);
  bool is_lost = false;
  mllm_status status = MLLM_OK;
  for (uint32_t i = 0; status == MLLM_OK && i < cache->pages; i++) {
    if (cache->slots[i] != MLLM_KV_NO_SLOT) status = read_block(cache, i, &is_lost, error);
  }
  if (status == MLLM_OK) {
    settle(cache, false, true);
    wake_up(cache);
    cache->used = ++cache->pool->clock;
    return MLLM_OK;
  }
  give_back_read(cache);
  if (is_lost) mllm_kv_cache_drop(cache);
  return status;
}

void mllm_kv_cache_empty(mllm_kv_cache *cache) {
  for (uint32_t i = 0; i < cache->pages; i++) {
    if (cache->blocks[i] != MLLM_KV_NO_PAGE) mllm_kv_page_release(cache->pool, cache->blocks[i]);
    cache->blocks[i] = MLLM_KV_NO_PAGE;
    if (cache->slots == NULL || cache->slots[i] == MLLM_KV_NO_SLOT) continue;
    release_slot(cache->pool, cache->slots[i]);
  }
  wake_up(cache);
  cache->length = cache->written = cache->pending = 0;
}

void mllm_kv_cache_drop(mllm_kv_cache *cache) {
  if (cache->state == MLLM_CACHE_DROPPED) return;
  mllm_kv_pool *pool = cache->pool;
  for (uint32_t i = 0; i < cache->pages; i++) {
    const uint32_t page = cache->blocks[i];
    const uint32_t slot = cache->slots == NULL ? MLLM_KV_NO_SLOT : cache->slots[i];
    if (page == MLLM_KV_NO_PAGE && slot == MLLM_KV_NO_SLOT) continue;
    const uint32_t state = page == MLLM_KV_NO_PAGE ? pool->spill->slots[slot].head.state
                                                   : mllm_kv_entry_of(pool, page)->state;
    pool->counted.dropped_pages++;
    pool->counted.dropped_bytes += cache->layout.bytes[state];
  }
  mllm_kv_cache_empty(cache);
  cache->state = MLLM_CACHE_DROPPED;
}

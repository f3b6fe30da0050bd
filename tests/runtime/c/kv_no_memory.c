/* kv_no_memory.c - saving, restoring, sleeping, waking and publishing where memory ends.
 *
 *   kv_no_memory PROGRAM FOLDER
 *
 * Each operation is tried with its first allocation refused, then its second, and so on until none
 * is: it gives a status, and the conversation holds what it held.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "mllm_kv.h"

enum { TOKENS = 200, PAGES = 9 };

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);

static long left = -1; /* allocations that are served before one is not; negative: all are */
static int refused;

static int is_refused(void) {
  if (left < 0 || left-- > 0) return 0;
  refused = 1;
  return 1;
}

void *malloc(size_t size) { return is_refused() ? NULL : __libc_malloc(size); }

void *calloc(size_t count, size_t size) { return is_refused() ? NULL : __libc_calloc(count, size); }

void *realloc(void *memory, size_t size) {
  return is_refused() ? NULL : __libc_realloc(memory, size);
}

typedef struct bench {
  mllm_model *model;
  mllm_session *session;
  mllm_kv_pool *pool;
  mllm_cache *talk;
  mllm_cache *made;
  mllm_cache_info info;
  char path[512];
  const char *folder;
  float *rows; /* [kv_heads, TOKENS, head_dim] */
  float *found;
} bench;

static const uint8_t key[MLLM_CACHE_KEY_BYTES] = {1, 2, 3};

static size_t row_bytes(const bench *b) {
  return (size_t)b->info.kv_heads * TOKENS * b->info.head_dim * sizeof(float);
}

static void each_slice(bench *b, mllm_cache *cache, int writes) {
  mllm_session *session = b->session;
  EXPECT(mllm_session_use_cache(session, 0, cache, NULL) == MLLM_OK);
  for (uint32_t i = 0; i < 2 * b->info.layers; i++) {
    const mllm_kv_kind kind = i % 2 == 0 ? MLLM_KV_KEY : MLLM_KV_VALUE;
    if (writes) {
      EXPECT(!mllm_session_cache_write(session, 0, i / 2, kind, b->rows, TOKENS, NULL));
      continue;
    }
    memset(b->found, 0, row_bytes(b));
    EXPECT(!mllm_session_cache_read(session, 0, i / 2, kind, b->found, TOKENS, NULL));
    EXPECT(memcmp(b->found, b->rows, row_bytes(b)) == 0);
  }
  EXPECT(mllm_session_use_cache(session, 0, NULL, NULL) == MLLM_OK);
}

static mllm_status save(bench *b, mllm_error *error) {
  return mllm_cache_save(b->talk, b->path, key, error);
}

static mllm_status restore(bench *b, mllm_error *error) {
  return mllm_cache_restore(b->pool, b->path, key, &b->made, error);
}

static mllm_status set_spill(bench *b, mllm_error *error) {
  return mllm_kv_pool_set_spill(b->pool, b->folder, PAGES * b->info.page_bytes, error);
}

static mllm_status spill(bench *b, mllm_error *error) { return mllm_cache_spill(b->talk, error); }

static mllm_status wake(bench *b, mllm_error *error) { return mllm_cache_wake(b->talk, error); }

static mllm_status allow(bench *b, mllm_error *error) {
  return mllm_kv_pool_allow(b->pool, MLLM_KV_MAY_DEMOTE, TOKENS, error);
}

static mllm_status publish(bench *b, mllm_error *error) {
  static const uint32_t ids[TOKENS];
  return mllm_cache_publish(b->talk, ids, TOKENS, NULL, error);
}

static void keep(bench *b) { (void)b; }

static void end_made(bench *b) { mllm_cache_destroy(b->made); }

static void wake_again(bench *b) { EXPECT(mllm_cache_wake(b->talk, NULL) == MLLM_OK); }

static void spill_again(bench *b) { EXPECT(mllm_cache_spill(b->talk, NULL) == MLLM_OK); }

/* Gives how often memory ended. */
static int try_all(bench *b, mllm_status (*act)(bench *, mllm_error *), void (*undo)(bench *),
                   mllm_cache_state state) {
  for (int count = 0;; count++) {
    mllm_error error;
    const mllm_kv_statistics before = mllm_kv_pool_statistics(b->pool);
    left = count;
    refused = 0;
    const mllm_status status = act(b, &error);
    left = -1;
    if (status == MLLM_OK && !refused) return count;
    if (status == MLLM_OK) { /* it can do without: once more, from the same state */
      undo(b);
      continue;
    }
    EXPECT(refused && (status == MLLM_OUT_OF_MEMORY || status == MLLM_IO) && error.code[0] != 0);
    EXPECT(mllm_cache_state_of(b->talk) == state && mllm_cache_length(b->talk) == TOKENS);
    const mllm_kv_statistics after = mllm_kv_pool_statistics(b->pool);
    EXPECT(after.used_bytes == before.used_bytes && after.asleep_pages == before.asleep_pages);
    EXPECT(after.caches == before.caches);
    if (state == MLLM_CACHE_AWAKE) each_slice(b, b->talk, 0);
  }
}

static void *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  EXPECT(file != NULL && fseek(file, 0, SEEK_END) == 0);
  *bytes = (size_t)ftell(file);
  rewind(file);
  void *data = malloc(*bytes);
  EXPECT(data != NULL && fread(data, 1, *bytes, file) == *bytes);
  (void)fclose(file);
  return data;
}

static void open_all(bench *b, const char *program) {
  static const uint64_t weights[8];
  size_t bytes = 0;
  mllm_error error;
  void *data = read_file(program, &bytes);
  EXPECT(mllm_model_create(data, bytes, weights, 0, NULL, &b->model, &error) == MLLM_OK);
  free(data);
  const mllm_session_options one = {.threads = 1};
  EXPECT(mllm_session_create(b->model, &one, &b->session, &error) == MLLM_OK);
  EXPECT(mllm_model_cache(b->model, 0, &b->info) == MLLM_OK);
  EXPECT(mllm_kv_pool_create(b->model, 0, PAGES * b->info.page_bytes, &b->pool, &error) == MLLM_OK);
  EXPECT(mllm_cache_create_in(b->pool, b->model, 0, &b->talk, &error) == MLLM_OK);
  b->rows = malloc(row_bytes(b));
  b->found = malloc(row_bytes(b));
  for (size_t i = 0; i < row_bytes(b) / sizeof(float); i++) b->rows[i] = (float)(i * 7 % 1001);
  each_slice(b, b->talk, 1);
  EXPECT(mllm_session_use_cache(b->session, 0, b->talk, &error) == MLLM_OK);
  EXPECT(mllm_session_cache_set_length(b->session, 0, TOKENS, &error) == MLLM_OK);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  bench b = {.folder = argv[2]};
  (void)snprintf(b.path, sizeof b.path, "%s/talk.kv", argv[2]);
  open_all(&b, argv[1]);
  mllm_error error; /* libcrypto begins only once: where that fails, so does all that comes later */
  EXPECT(save(&b, &error) == MLLM_OK);
  int ends = try_all(&b, save, keep, MLLM_CACHE_AWAKE);
  const int restores = try_all(&b, restore, end_made, MLLM_CACHE_AWAKE);
  each_slice(&b, b.made, 0);
  mllm_cache_destroy(b.made);
  ends += try_all(&b, set_spill, keep, MLLM_CACHE_AWAKE);
  ends += try_all(&b, spill, wake_again, MLLM_CACHE_AWAKE);
  EXPECT(mllm_cache_state_of(b.talk) == MLLM_CACHE_SLEEPING);
  const int wakes = try_all(&b, wake, spill_again, MLLM_CACHE_SLEEPING);
  each_slice(&b, b.talk, 0);
  ends += try_all(&b, allow, keep, MLLM_CACHE_AWAKE);
  ends += try_all(&b, publish, keep, MLLM_CACHE_AWAKE);
  EXPECT(ends > 5 && restores > 2 && wakes > 0);
  mllm_cache_destroy(b.talk);
  EXPECT(mllm_kv_pool_destroy(b.pool, NULL) == MLLM_OK);
  mllm_session_destroy(b.session);
  mllm_model_destroy(b.model);
  free(b.rows);
  free(b.found);
  (void)printf("memory ended %d times\n", ends + restores + wakes);
  return 0;
}

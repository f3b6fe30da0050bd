/* pool_test.c - buffers of a pool against a shadow model, and what a pool refuses and tells. */
#include <stdint.h>
#include <string.h>

#include "expect.h"
#include "mllm_pool.h"

#define MIB ((uint64_t)1 << 20)

enum { STEPS = 15000, LIVE = 700 };

static uint64_t seed = 88172645463325252u;

/* xorshift (Marsaglia 2003) */
static uint64_t any(uint64_t below) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed % below;
}

static mllm_pool *pool_of(uint64_t bytes, uint32_t buffers) {
  mllm_pool *pool = NULL;
  mllm_error error;
  const mllm_pool_options options = {.bytes = bytes, .buffers = buffers};
  EXPECT(mllm_pool_create(&options, &pool, &error) == MLLM_OK);
  return pool;
}

static mllm_buffer take(mllm_pool *pool, uint64_t bytes, const char *owner) {
  mllm_buffer buffer = 1;
  mllm_error error;
  const mllm_pool_request request = {.bytes = bytes, .name = "thing", .owner = owner};
  const mllm_status status = mllm_pool_take(pool, &request, &buffer, &error);
  EXPECT((status == MLLM_OK) == (buffer != MLLM_NO_BUFFER));
  if (status != MLLM_OK) EXPECT(status == MLLM_OUT_OF_MEMORY && strcmp(error.code, "MLC-X060") == 0);
  return buffer;
}

static unsigned char *data_of(mllm_pool *pool, mllm_buffer buffer) {
  void *data = NULL;
  EXPECT(mllm_pool_access(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, &data, NULL) == MLLM_OK);
  EXPECT(mllm_pool_access_end(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, NULL) == MLLM_OK);
  return data;
}

/* What the model knows: a buffer and the byte that all of it holds. */
typedef struct shadow {
  mllm_buffer buffer;
  unsigned char *data;
  uint64_t bytes;
  unsigned char mark;
} shadow;

static void check(const shadow *s) {
  for (uint64_t i = 0; i < s->bytes; i++) EXPECT(s->data[i] == s->mark);
}

static uint64_t any_size(void) {
  const uint64_t roll = any(100);
  if (roll < 80) return 1 + any(3000);
  if (roll < 95) return 1 + any(600 << 10);
  return 1 + any(9 * MIB);
}

/* No two buffers share a byte, addresses are aligned, figures are those of the model, and all of the region
 * can be had again at the end. */
static void agrees_with_a_model(void) {
  static shadow live[LIVE];
  size_t n = 0;
  uint64_t requested = 0, refused = 0;
  mllm_pool *pool = pool_of(67 * MIB, 0);
  for (uint32_t step = 0; step < STEPS; step++) {
    if (n < LIVE && any(100) < 52) {
      shadow *s = &live[n];
      s->bytes = any_size();
      s->buffer = take(pool, s->bytes, "model");
      if (s->buffer == MLLM_NO_BUFFER) {
        refused++;
        continue;
      }
      s->data = data_of(pool, s->buffer);
      s->mark = (unsigned char)any(256);
      EXPECT((uintptr_t)s->data % (s->bytes > 128 << 10 ? 256 << 10 : 64) == 0);
      memset(s->data, s->mark, s->bytes);
      requested += s->bytes;
      n++;
    } else if (n > 0) {
      const size_t i = any(n);
      check(&live[i]);
      requested -= live[i].bytes;
      EXPECT(mllm_pool_release(pool, live[i].buffer, NULL) == MLLM_OK);
      EXPECT(mllm_pool_references(pool, live[i].buffer) == 0);
      live[i] = live[--n];
    }
    if (step % 500 != 0) continue;
    mllm_pool_statistics now;
    mllm_pool_statistics_of(pool, &now);
    EXPECT(now.requested == requested && now.types[MLLM_POOL_ARENA].buffers == n);
    EXPECT(now.used >= requested && now.used + now.holes <= now.bytes && now.peak >= now.used);
    EXPECT(mllm_pool_report(pool, "model", NULL, NULL) == n && now.failed == refused);
  }
  EXPECT(refused > 0);
  while (n > 0) {
    check(&live[--n]);
    EXPECT(mllm_pool_release(pool, live[n].buffer, NULL) == MLLM_OK);
  }
  mllm_pool_statistics end;
  mllm_pool_statistics_of(pool, &end);
  EXPECT(end.used == 0 && end.requested == 0 && end.holes == 0 && end.largest == 67 * MIB);
  EXPECT(mllm_pool_external_waste(pool, 67 * MIB) == 0);
  EXPECT(take(pool, 67 * MIB, "model") != MLLM_NO_BUFFER);
  mllm_pool_destroy(pool);
}

static void refuses_without_harm(void) {
  mllm_pool *pool = pool_of(8 * MIB, 3);
  mllm_error error;
  mllm_buffer buffer = 1;
  const mllm_buffer a = take(pool, 3 * MIB, "a");
  EXPECT(take(pool, 5 * MIB + 1, "b") == MLLM_NO_BUFFER && take(pool, UINT64_MAX, "b") == MLLM_NO_BUFFER);
  const mllm_buffer b = take(pool, 1, "b"), c = take(pool, 1, "b");
  EXPECT(b != MLLM_NO_BUFFER && c != MLLM_NO_BUFFER && take(pool, 1, "c") == MLLM_NO_BUFFER);
  const mllm_pool_request none = {.bytes = 0};
  EXPECT(mllm_pool_take(pool, &none, &buffer, &error) == MLLM_INVALID_ARGUMENT && buffer == 0);
  EXPECT(mllm_pool_release(pool, b, &error) == MLLM_OK);
  EXPECT(mllm_pool_release(pool, b, &error) == MLLM_INVALID_ARGUMENT);
  EXPECT(strcmp(error.code, "MLC-X062") == 0);
  const mllm_buffer again = take(pool, 1, "c");
  EXPECT(again != b && mllm_pool_retain(pool, b, NULL) != MLLM_OK);
  EXPECT(mllm_pool_references(pool, a) == 1 && mllm_pool_references(pool, again) == 1);
  EXPECT(mllm_pool_retain(pool, 12345, NULL) != MLLM_OK && mllm_pool_retain(pool, 0, NULL) != MLLM_OK);
  mllm_pool_destroy(pool);
}

static void held_up_until_inferences_end(void) {
  mllm_pool *pool = pool_of(4 * MIB, 0);
  mllm_pool_statistics now;
  uint32_t first, second, third;
  const mllm_buffer early = take(pool, 1 * MIB, "a"), late = take(pool, 1 * MIB, "a");
  EXPECT(mllm_pool_begin(pool, &first, NULL) == MLLM_OK);
  EXPECT(mllm_pool_release(pool, early, NULL) == MLLM_OK);
  EXPECT(mllm_pool_begin(pool, &second, NULL) == MLLM_OK);
  EXPECT(mllm_pool_release(pool, late, NULL) == MLLM_OK);
  mllm_pool_statistics_of(pool, &now);
  EXPECT(now.used == 2 * MIB && now.waiting == 2 && mllm_pool_references(pool, early) == 0);
  EXPECT(mllm_pool_report(pool, NULL, NULL, NULL) == 0);
  EXPECT(mllm_pool_begin(pool, &third, NULL) == MLLM_OK);
  mllm_pool_end(pool, first);
  mllm_pool_statistics_of(pool, &now);
  EXPECT(now.used == 1 * MIB && now.waiting == 1);
  mllm_pool_end(pool, second); /* the third began after both releases */
  mllm_pool_statistics_of(pool, &now);
  EXPECT(now.used == 0 && now.waiting == 0);
  mllm_pool_end(pool, third);
  for (uint32_t i = 0; i < 64; i++) EXPECT(mllm_pool_begin(pool, &first, NULL) == MLLM_OK);
  EXPECT(mllm_pool_begin(pool, &first, NULL) == MLLM_OUT_OF_BOUNDS);
  mllm_pool_end(pool, first);
  mllm_pool_destroy(pool);
}

static void name_it(void *context, const mllm_pool_left *left) {
  (void)snprintf(context, 96, "%s of %s: %llu bytes, %u", left->name, left->owner,
                 (unsigned long long)left->bytes, left->references);
}

static void tells_what_is_left(void) {
  const mllm_pool_options options = {.bytes = 8 * MIB, .watermarks = {[MLLM_POOL_ARENA] = 1 * MIB}};
  mllm_pool *pool = NULL;
  mllm_pool_statistics now;
  mllm_error error;
  char line[96] = "";
  EXPECT(mllm_pool_create(&options, &pool, &error) == MLLM_OK);
  const mllm_buffer a = take(pool, 700, "session 1"), b = take(pool, 3 * MIB, "session 2");
  EXPECT(mllm_pool_retain(pool, a, NULL) == MLLM_OK && mllm_pool_release(pool, b, NULL) == MLLM_OK);
  EXPECT(mllm_pool_report(pool, "session 2", name_it, line) == 0 && line[0] == '\0');
  EXPECT(mllm_pool_report(pool, NULL, name_it, line) == 1);
  EXPECT(strcmp(line, "thing of session 1: 700 bytes, 2") == 0);
  mllm_pool_statistics_of(pool, &now);
  EXPECT(now.types[MLLM_POOL_ARENA].over == 1 && now.types[MLLM_POOL_CACHE].over == 0);
  EXPECT(now.types[MLLM_POOL_ARENA].peak == 3 * MIB + 768 && now.used == 768);
  const mllm_pool_request request = {.bytes = 64, .name = "late", .owner = "session 3"};
  mllm_buffer buffer;
  mllm_pool_forbid(pool, 1);
  EXPECT(mllm_pool_take(pool, &request, &buffer, &error) != MLLM_OK);
  EXPECT(strcmp(error.code, "MLC-X065") == 0 && strstr(error.message, "'late' of session 3") != NULL);
  mllm_pool_forbid(pool, 0);
  EXPECT(mllm_pool_take(pool, &request, &buffer, &error) == MLLM_OK);
  mllm_pool_statistics_of(pool, &now);
  EXPECT(now.forbidden == 1 && now.failed == 0);
  mllm_pool_destroy(pool);
}

static void warming_changes_no_byte(void) {
  mllm_pool *pool = pool_of(16 * MIB, 0);
  const mllm_buffer buffer = take(pool, 5 * MIB, "a");
  unsigned char *data = data_of(pool, buffer);
  memset(data, 42, 5 * MIB);
  EXPECT(mllm_pool_warm(pool, 16 * MIB, NULL) == MLLM_OK);
  EXPECT(mllm_pool_warm(pool, 17 * MIB, NULL) == MLLM_OUT_OF_BOUNDS);
  for (uint64_t i = 0; i < 5 * MIB; i++) EXPECT(data[i] == 42);
  mllm_pool_destroy(pool);
}

/* Whatever the system says of huge pages and locking, the pool is there and tells; or is not, if strict. */
static void options_are_wishes(void) {
  const uint32_t wishes = MLLM_POOL_HUGE_PAGES | MLLM_POOL_LOCKED;
  mllm_pool_options options = {.bytes = 2 * MIB, .flags = wishes};
  mllm_pool *pool = NULL;
  mllm_pool_statistics now;
  mllm_error error;
  EXPECT(mllm_pool_create(&options, &pool, &error) == MLLM_OK);
  mllm_pool_statistics_of(pool, &now);
  EXPECT((now.refused & ~wishes) == 0);
  mllm_pool_destroy(pool);
  options.flags |= MLLM_POOL_STRICT;
  const mllm_status status = mllm_pool_create(&options, &pool, &error);
  EXPECT((status == MLLM_OK) == (now.refused == 0) && (pool != NULL) == (status == MLLM_OK));
  if (status != MLLM_OK) EXPECT(strcmp(error.code, "MLC-X061") == 0);
  mllm_pool_destroy(pool);
  options.bytes = 0;
  EXPECT(mllm_pool_create(&options, &pool, &error) == MLLM_INVALID_ARGUMENT && pool == NULL);
}

int main(void) {
  agrees_with_a_model();
  refuses_without_harm();
  held_up_until_inferences_end();
  tells_what_is_left();
  warming_changes_no_byte();
  options_are_wishes();
  return 0;
}

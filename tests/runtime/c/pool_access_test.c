/* pool_access_test.c - every pair of accesses on memory without coherent caches, checked line by line. */
#include <stdint.h>
#include <string.h>

#include "expect.h"
#include "mllm_pool.h"

#define MIB ((uint64_t)1 << 20)

enum { BYTES = 5000, ACCESSES = 2 * MLLM_MEMORY_DOMAINS };

static mllm_pool *pool_on(const mllm_pool_backend *backend) {
  mllm_pool *pool = NULL;
  mllm_error error;
  const mllm_pool_options options = {.bytes = 2 * MIB, .backend = backend};
  EXPECT(mllm_pool_create(&options, &pool, &error) == MLLM_OK);
  return pool;
}

static mllm_buffer take(mllm_pool *pool) {
  mllm_buffer buffer = MLLM_NO_BUFFER;
  const mllm_pool_request request = {.bytes = BYTES, .name = "frame", .owner = "camera"};
  EXPECT(mllm_pool_take(pool, &request, &buffer, NULL) == MLLM_OK);
  return buffer;
}

static mllm_memory domain_of(int i) { return (mllm_memory)(i / 2); }

static mllm_access access_of(int i) { return i % 2 == 0 ? MLLM_ACCESS_READ : MLLM_ACCESS_WRITE; }

/* One access: sees what was written last, and writes half of the buffer anew. */
static mllm_status visit(mllm_pool *pool, mllm_buffer buffer, int i, unsigned char *want, int round,
                         mllm_error *error) {
  void *data = NULL;
  const mllm_status status =
      mllm_pool_access(pool, buffer, domain_of(i), access_of(i), &data, error);
  if (status != MLLM_OK) return status;
  EXPECT(memcmp(data, want, BYTES) == 0);
  if (access_of(i) == MLLM_ACCESS_WRITE) {
    memset((char *)data + round % 2 * (BYTES / 2), round + i, BYTES / 2);
    memset(want + round % 2 * (BYTES / 2), round + i, BYTES / 2);
  }
  EXPECT(mllm_pool_access_end(pool, buffer, domain_of(i), access_of(i), NULL) == MLLM_OK);
  return MLLM_OK;
}

/* All chains of three accesses: a pair is reached from each state. Gives the first failure. */
static mllm_status all_chains(mllm_pool *pool, mllm_error *error) {
  unsigned char want[BYTES] = {0};
  const mllm_buffer buffer = take(pool);
  for (int chain = 0; chain < ACCESSES * ACCESSES * ACCESSES; chain++) {
    const int visits[] = {chain % ACCESSES, chain / ACCESSES % ACCESSES,
                          chain / ACCESSES / ACCESSES};
    for (int i = 0; i < 3; i++) {
      const mllm_status status = visit(pool, buffer, visits[i], want, chain + i, error);
      if (status != MLLM_OK) return status;
    }
  }
  return MLLM_OK;
}

static mllm_maintenance left_out;

static mllm_status leave_one_out(void *context, mllm_pool_region *region, mllm_maintenance operation,
                                 const mllm_pool_stretch *stretch, mllm_error *error) {
  if (operation == left_out) return MLLM_OK;
  return mllm_pool_checking()->maintain(context, region, operation, stretch, error);
}

static void every_operation_is_needed(void) {
  static const char *const words[] = {"", "'clean'", "'invalidate'", "'flush'"};
  mllm_pool_backend broken = *mllm_pool_checking();
  broken.maintain = leave_one_out;
  for (int i = MLLM_MAINTAIN_CLEAN; i <= MLLM_MAINTAIN_FLUSH; i++) {
    left_out = (mllm_maintenance)i;
    mllm_error error = {0};
    mllm_pool *pool = pool_on(&broken);
    EXPECT(all_chains(pool, &error) == MLLM_INTERNAL && strcmp(error.code, "MLC-X064") == 0);
    EXPECT(strstr(error.message, words[i]) != NULL);
    EXPECT(strstr(error.message, "buffer 'frame' of camera") != NULL);
    mllm_pool_destroy(pool);
  }
}

/* No operation takes place without need: these are counted by hand. */
static void no_operation_is_idle(void) {
  static const int visits[] = {1, 0, 6, 6, 0, 7, 6, 0, 1, 4, 7, 2};
  unsigned char want[BYTES] = {0};
  mllm_pool_statistics now;
  mllm_pool *pool = pool_on(mllm_pool_checking());
  const mllm_buffer buffer = take(pool);
  for (size_t i = 0; i < sizeof visits / sizeof visits[0]; i++)
    EXPECT(visit(pool, buffer, visits[i], want, (int)i, NULL) == MLLM_OK);
  mllm_pool_statistics_of(pool, &now);
  EXPECT(now.maintained[MLLM_MAINTAIN_CLEAN] == 1);      /* the NPU reads what the processor wrote */
  EXPECT(now.maintained[MLLM_MAINTAIN_INVALIDATE] == 1); /* the processor reads what it wrote */
  EXPECT(now.maintained[MLLM_MAINTAIN_FLUSH] == 1);      /* it writes over what the processor wrote */
  mllm_pool_destroy(pool);
}

/* Memory is given again without lines of who had it before. */
static void a_new_owner_starts_clean(void) {
  mllm_pool *pool = pool_on(mllm_pool_checking());
  for (int first = 0; first < ACCESSES; first++)
    for (int second = 0; second < ACCESSES; second++) {
      unsigned char want[BYTES];
      void *data = NULL;
      mllm_buffer buffer = take(pool);
      EXPECT(mllm_pool_access(pool, buffer, domain_of(first), access_of(first), &data, NULL) == MLLM_OK);
      memcpy(want, data, BYTES);
      EXPECT(mllm_pool_access_end(pool, buffer, domain_of(first), access_of(first), NULL) == MLLM_OK);
      EXPECT(visit(pool, buffer, first, want, first, NULL) == MLLM_OK);
      EXPECT(mllm_pool_release(pool, buffer, NULL) == MLLM_OK);
      buffer = take(pool);
      EXPECT(visit(pool, buffer, second, want, second, NULL) == MLLM_OK);
      EXPECT(mllm_pool_release(pool, buffer, NULL) == MLLM_OK);
    }
  mllm_pool_destroy(pool);
}

static void expect_refused(mllm_pool *pool, mllm_buffer buffer, int i, const char *words) {
  mllm_error error = {0};
  void *data = pool;
  EXPECT(mllm_pool_access(pool, buffer, domain_of(i), access_of(i), &data, &error) != MLLM_OK);
  EXPECT(data == NULL && strcmp(error.code, "MLC-X063") == 0);
  if (strstr(error.message, words) == NULL) (void)fprintf(stderr, "%s\n", error.message);
  EXPECT(strstr(error.message, words) != NULL);
}

/* Every access during every other: only readers go together. */
static void others_are_kept_out(void) {
  static const char *const who[] = {"the processor", "the processor past its caches",
                                    "a coherent NPU", "an NPU", "a GPU"};
  mllm_pool *pool = pool_on(mllm_pool_checking());
  const mllm_buffer buffer = take(pool);
  for (int first = 0; first < ACCESSES; first++)
    for (int second = 0; second < ACCESSES; second++) {
      void *data = NULL;
      EXPECT(mllm_pool_access(pool, buffer, domain_of(first), access_of(first), &data, NULL) == MLLM_OK);
      if (first % 2 == 0 && second % 2 == 0) {
        EXPECT(mllm_pool_access(pool, buffer, domain_of(second), MLLM_ACCESS_READ, &data, NULL) == MLLM_OK);
        EXPECT(mllm_pool_access_end(pool, buffer, domain_of(second), MLLM_ACCESS_READ, NULL) == MLLM_OK);
      } else {
        char words[160];
        (void)snprintf(words, sizeof words, "%s cannot %s buffer 'frame' of camera while %s %s it",
                       who[second / 2], second % 2 ? "write" : "read", who[first / 2],
                       first % 2 ? "writes" : "reads");
        expect_refused(pool, buffer, second, words);
      }
      EXPECT(mllm_pool_access_end(pool, buffer, domain_of(first), access_of(first), NULL) == MLLM_OK);
      EXPECT(mllm_pool_access_end(pool, buffer, domain_of(first), access_of(first), NULL) != MLLM_OK);
    }
  void *data = NULL;
  EXPECT(mllm_pool_access(pool, buffer, MLLM_MEMORY_DOMAINS, MLLM_ACCESS_READ, &data, NULL) != MLLM_OK);
  EXPECT(mllm_pool_access(pool, buffer, MLLM_MEMORY_HOST, (mllm_access)0, &data, NULL) != MLLM_OK);
  mllm_pool_destroy(pool);
  pool = pool_on(NULL);
  expect_refused(pool, take(pool), 2 * MLLM_MEMORY_GPU, "anonymous memory' is not visible to a GPU");
  mllm_pool_destroy(pool);
}

int main(void) {
  mllm_error error = {0};
  mllm_pool *pool = pool_on(mllm_pool_checking());
  const mllm_status status = all_chains(pool, &error);
  if (status != MLLM_OK) (void)fprintf(stderr, "%s\n", error.message);
  EXPECT(status == MLLM_OK);
  mllm_pool_destroy(pool);
  every_operation_is_needed();
  no_operation_is_idle();
  a_new_owner_starts_clean();
  others_are_kept_out();
  return 0;
}

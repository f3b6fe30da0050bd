/* pool_threads_test.c - buffers that go from thread to thread: references and bytes stay right. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "expect.h"
#include "mllm_pool.h"

#define MIB ((uint64_t)1 << 20)

enum { THREADS = 4, TRANSFERS = 100000, QUEUE = 64 };

/* A buffer on its way, and how many threads still have to read it. */
typedef struct mailbox {
  pthread_mutex_t lock;
  mllm_buffer buffers[QUEUE];
  size_t n;
} mailbox;

typedef struct worker {
  uint32_t index;
  uint64_t errors;
} worker;

static mllm_pool *pool;
static mailbox boxes[THREADS];
static atomic_uint sent, received;

static int send_to(uint32_t to, mllm_buffer buffer) {
  mailbox *box = &boxes[to];
  (void)pthread_mutex_lock(&box->lock);
  const int fits = box->n < QUEUE;
  if (fits) box->buffers[box->n++] = buffer;
  (void)pthread_mutex_unlock(&box->lock);
  return fits;
}

static mllm_buffer receive(uint32_t index) {
  mailbox *box = &boxes[index];
  (void)pthread_mutex_lock(&box->lock);
  const mllm_buffer buffer = box->n > 0 ? box->buffers[--box->n] : MLLM_NO_BUFFER;
  (void)pthread_mutex_unlock(&box->lock);
  return buffer;
}

/* Every buffer holds its own number in its first and last bytes. */
static int bytes_are_right(mllm_buffer buffer, uint64_t *bytes) {
  void *data = NULL;
  uint64_t offset = 0, first = 0, last = 0;
  if (mllm_pool_access(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_READ, &data, NULL) != MLLM_OK) return 0;
  (void)mllm_pool_place(pool, buffer, &offset, bytes, NULL);
  memcpy(&first, data, sizeof first);
  memcpy(&last, (char *)data + *bytes - sizeof last, sizeof last);
  return mllm_pool_access_end(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_READ, NULL) == MLLM_OK &&
         first == buffer && last == buffer;
}

static mllm_buffer fresh(uint32_t index, uint32_t number) {
  static const uint64_t sizes[] = {64, 100, 3000, 70000, 1 * MIB, 2 * MIB};
  const mllm_pool_request request = {
      .bytes = sizes[number % 6], .type = index, .name = "message", .owner = "threads"};
  mllm_buffer buffer = MLLM_NO_BUFFER;
  void *data = NULL;
  if (mllm_pool_take(pool, &request, &buffer, NULL) != MLLM_OK) return buffer;
  (void)mllm_pool_access(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, &data, NULL);
  memcpy(data, &buffer, sizeof buffer);
  memcpy((char *)data + request.bytes - sizeof buffer, &buffer, sizeof buffer);
  (void)mllm_pool_access_end(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, NULL);
  return buffer;
}

/* A reference for each of the others; each of them gives it back when it has read. */
static void send_one(worker *self) {
  const uint32_t number = atomic_fetch_add(&sent, THREADS - 1);
  if (number >= TRANSFERS) {
    atomic_fetch_sub(&sent, THREADS - 1);
    return;
  }
  const mllm_buffer buffer = fresh(self->index, number);
  if (buffer == MLLM_NO_BUFFER) {
    atomic_fetch_sub(&sent, THREADS - 1);
    return;
  }
  for (uint32_t i = 0; i < THREADS; i++) {
    if (i == self->index) continue;
    self->errors += mllm_pool_retain(pool, buffer, NULL) != MLLM_OK;
    if (send_to(i, buffer)) continue;
    self->errors += mllm_pool_release(pool, buffer, NULL) != MLLM_OK;
    atomic_fetch_sub(&sent, 1);
  }
  self->errors += mllm_pool_references(pool, buffer) < 1;
  self->errors += mllm_pool_release(pool, buffer, NULL) != MLLM_OK;
}

static void *work(void *context) {
  worker *self = context;
  for (uint32_t round = 0; atomic_load(&received) < TRANSFERS; round++) {
    uint32_t ticket = 0;
    self->errors += mllm_pool_begin(pool, &ticket, NULL) != MLLM_OK;
    send_one(self);
    mllm_buffer buffer = MLLM_NO_BUFFER;
    while ((buffer = receive(self->index)) != MLLM_NO_BUFFER) {
      uint64_t bytes = 0;
      const uint32_t refs = mllm_pool_references(pool, buffer);
      self->errors += refs < 1 || refs > THREADS;
      self->errors += !bytes_are_right(buffer, &bytes);
      self->errors += mllm_pool_release(pool, buffer, NULL) != MLLM_OK;
      self->errors += !bytes_are_right(buffer, &bytes) && mllm_pool_references(pool, buffer) > 0;
      atomic_fetch_add(&received, 1);
    }
    mllm_pool_end(pool, ticket);
  }
  return NULL;
}

int main(void) {
  const mllm_pool_options options = {.bytes = 1024 * MIB};
  pthread_t threads[THREADS];
  worker workers[THREADS];
  mllm_pool_statistics end;
  uint64_t errors = 0;
  EXPECT(mllm_pool_create(&options, &pool, NULL) == MLLM_OK);
  for (uint32_t i = 0; i < THREADS; i++) (void)pthread_mutex_init(&boxes[i].lock, NULL);
  for (uint32_t i = 0; i < THREADS; i++) {
    workers[i] = (worker){.index = i};
    EXPECT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  for (uint32_t i = 0; i < THREADS; i++) {
    EXPECT(pthread_join(threads[i], NULL) == 0);
    errors += workers[i].errors;
  }
  for (uint32_t i = 0; i < THREADS; i++)
    for (mllm_buffer buffer = receive(i); buffer != MLLM_NO_BUFFER; buffer = receive(i))
      errors += mllm_pool_release(pool, buffer, NULL) != MLLM_OK;
  mllm_pool_statistics_of(pool, &end);
  (void)printf("%u transfers, %llu errors\n", atomic_load(&received),
               (unsigned long long)errors);
  EXPECT(errors == 0 && end.used == 0 && end.waiting == 0 && atomic_load(&received) >= TRANSFERS);
  EXPECT(mllm_pool_report(pool, NULL, NULL, NULL) == 0);
  mllm_pool_destroy(pool);
  return 0;
}

/* threads_test: every item is worked on once, in many regions of many sizes; made for TSan too. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../../../runtime_stub/src/threads.h"

enum { ITEMS = 1000 };

typedef struct counts {
  unsigned char seen[ITEMS];
  atomic_size_t bytes_ok;
} counts;

static void mark(void *argument, size_t begin, size_t end, void *scratch) {
  counts *c = argument;
  memset(scratch, (int)begin & 0xFF, 4096);
  for (size_t i = begin; i < end; i++) c->seen[i]++;
  const unsigned char *own = scratch;
  if (own[0] == (begin & 0xFF) && own[4095] == (begin & 0xFF))
    atomic_fetch_add(&c->bytes_ok, end - begin);
}

static int check(mllm_threads *pool, size_t items, size_t grain) {
  static counts c;
  memset(c.seen, 0, sizeof c.seen);
  atomic_store(&c.bytes_ok, 0);
  mllm_parallel_for(pool, items, grain, mark, &c);
  for (size_t i = 0; i < ITEMS; i++) {
    if (c.seen[i] != (i < items)) return 1;
  }
  return atomic_load(&c.bytes_ok) != items;
}

int main(void) {
  static const uint32_t sizes[] = {1, 2, 3, 8, 0};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    mllm_threads *pool = mllm_threads_create(sizes[s]);
    if (pool == NULL) return 1;
    for (size_t round = 0; round < 300; round++) {
      const size_t items = round * 37 % (ITEMS + 1);
      if (check(pool, items, round % 9) != 0) {
        (void)fprintf(stderr, "%u threads, %zu items: not once each\n", sizes[s], items);
        return 1;
      }
      /* now and then long enough for the workers to fall asleep */
      if (round % 50 == 0) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    mllm_threads_destroy(pool);
  }
  return 0;
}

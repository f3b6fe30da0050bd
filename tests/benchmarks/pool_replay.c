/* pool_replay.c - the memory of a long meeting, replayed on a pool. Prints "name value" lines.
 *
 *   pool_replay REGION_BYTES STEPS FLAGS PAGE_BYTES ARENA...
 *
 * A step takes or releases a buffer. Conversations come with an arena, take a page of cache for each 256 tokens,
 * up to 2,048, and go with all that. Frames, sound, tiles, logits and small tables live for some
 * steps. Nothing is asked for that would bring what is used, as rounded, above 95 % of the memory: room is
 * made first by the end of a conversation, and what fails then fails by fragments. pages_dropped is what
 * went back to the system for others, as a part of what was taken. Sizes of conversations and media come
 * from xorshift with a fixed seed.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mllm_pool.h"

enum { CONVERSATIONS = 1024, FRAMES = 64, TABLES = 4096, PAGES = 8, ARENAS = 8, UNIT = 1 << 20 };

typedef struct conversation {
  mllm_buffer arena;
  mllm_buffer pages[PAGES];
  uint32_t n;
} conversation;

static mllm_pool *pool;
static conversation conversations[CONVERSATIONS];
static mllm_buffer frames[FRAMES], tables[TABLES];
static uint64_t region, page, arenas[ARENAS], n_arenas;
static uint64_t steps, most, tried, failed, given, seed = 88172645463325252u;
static double waste, worst, fill, samples;

/* xorshift (Marsaglia 2003) */
static uint64_t any(uint64_t below) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed % below;
}

static void step(void) {
  mllm_pool_statistics now;
  if (++steps % 1000 != 0 || steps < most / 100) return;
  mllm_pool_statistics_of(pool, &now);
  const double lost = (double)mllm_pool_external_waste(pool, page) / (double)region;
  waste += lost;
  if (lost > worst) worst = lost;
  fill += (double)now.used / (double)region;
  samples += 1;
}

static void release(mllm_buffer *buffer) {
  if (*buffer == MLLM_NO_BUFFER) return;
  (void)mllm_pool_release(pool, *buffer, NULL);
  *buffer = MLLM_NO_BUFFER;
  step();
}

static void make_room(void) {
  conversation *victim = &conversations[any(CONVERSATIONS)];
  while (victim->arena == MLLM_NO_BUFFER) victim = &conversations[any(CONVERSATIONS)];
  while (victim->n > 0) release(&victim->pages[--victim->n]);
  release(&victim->arena);
}

static mllm_buffer take(uint64_t bytes, mllm_pool_type type) {
  const uint64_t rounded =
      bytes > UNIT / 2 ? (bytes + UNIT - 1) / UNIT * UNIT : bytes + bytes / 4;
  mllm_pool_statistics now;
  mllm_buffer buffer;
  for (mllm_pool_statistics_of(pool, &now); (double)(now.used + rounded) > 0.95 * (double)region;
       mllm_pool_statistics_of(pool, &now))
    make_room();
  const mllm_pool_request request = {.bytes = bytes, .type = type, .name = "replay", .owner = "meeting"};
  tried++;
  if (mllm_pool_take(pool, &request, &buffer, NULL) == MLLM_OK)
    given += rounded;
  else
    failed++;
  step();
  return buffer;
}

static void say(void) {
  conversation *c = &conversations[any(CONVERSATIONS)];
  if (c->n == PAGES) return;
  const int begins = c->arena == MLLM_NO_BUFFER;
  const mllm_buffer made =
      begins ? take(arenas[any(n_arenas)], MLLM_POOL_ARENA) : take(page, MLLM_POOL_CACHE);
  if (begins)
    c->arena = made;
  else if (c->arena != MLLM_NO_BUFFER && made != MLLM_NO_BUFFER)
    c->pages[c->n++] = made;
  else /* room for the page was made by the end of this conversation */
    (void)mllm_pool_release(pool, made, NULL);
}

static void see(void) {
  static const uint64_t sizes[] = {
      1280 * 720 * 3 / 2, /* a frame in NV12 */
      640 * 480 * 3,      /* one in RGB */
      30 * 16000 * 4,     /* half a minute of sound */
      80 * 3000 * 4,      /* its spectrum */
      512 * 512 * 3 * 4,  /* pixels of a tile */
  };
  mllm_buffer *place = &frames[any(FRAMES)];
  release(place);
  *place = take(sizes[any(5)], MLLM_POOL_MEDIA);
}

static void write_down(void) {
  static const uint64_t sizes[] = {49152 * 4, 576 * 4, 4096, 1024, 256, 64};
  mllm_buffer *place = &tables[any(TABLES)];
  const uint64_t kind = any(8);
  release(place);
  *place = take(kind < 6 ? sizes[kind] : 1 + any(20000), MLLM_POOL_OTHER);
}

int main(int argc, char **argv) {
  mllm_error error;
  if (argc < 6 || argc > 5 + ARENAS) return 2;
  region = strtoull(argv[1], NULL, 10);
  most = strtoull(argv[2], NULL, 10);
  page = strtoull(argv[4], NULL, 10);
  for (int i = 5; i < argc; i++) arenas[n_arenas++] = strtoull(argv[i], NULL, 10);
  const mllm_pool_options options = {.bytes = region,
                                     .flags = (uint32_t)strtoul(argv[3], NULL, 10)};
  if (mllm_pool_create(&options, &pool, &error) != MLLM_OK) return 1;
  struct timespec from, to;
  (void)clock_gettime(CLOCK_MONOTONIC, &from);
  while (steps < most) {
    const uint64_t roll = any(100);
    if (roll < 30)
      say();
    else if (roll < 60)
      see();
    else
      write_down();
  }
  (void)clock_gettime(CLOCK_MONOTONIC, &to);
  mllm_pool_statistics end;
  mllm_pool_statistics_of(pool, &end);
  (void)printf("alloc_success %.9f\n", 1 - (double)failed / (double)tried);
  (void)printf("external_waste %.6f\nexternal_waste_max %.6f\n", waste / samples, worst);
  (void)printf("pool_fill %.6f\n", fill / samples);
  (void)printf("internal_waste %.6f\n", 1 - (double)end.requested / (double)end.used);
  (void)printf("pages_dropped %.6f\n", (double)end.dropped / (double)given);
  (void)printf("pool_step_us %.4f\n",
               ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) /
                   (double)steps);
  mllm_pool_destroy(pool);
  return 0;
}

/* Conversations in a pool and a file that are both too small for them: each answers, to the bit, as
 * its twin, which has a cache of its own, never sleeps and is never saved.
 *
 *     soak_pressure BUNDLE FOLDER EVENTS SEED
 *
 * Events are drawn: words, sleep, forks, rewinds, beginnings, falls to 4 bits, files, moves, relief.
 * A fifth of them warms up. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mllm_kv.h"
#include "soak.h"

enum { LIVE = 12, ROOM = 15, FILE_PAGES = 14, TOKENS = 192, WORDS = 256, TOPICS = 6, TRIES = 64 };

typedef struct talk {
  mllm_cache *cache; /* NULL: nobody talks here */
  mllm_cache *twin;
  uint32_t ids[TOKENS];
  uint32_t length;
  mllm_priority priority;
  uint32_t fallen; /* a bit for each block of 4 bits */
  bool has_fallen; /* some block did, once: a fork has no twin, who would have to fall alike */
  bool is_exact;   /* its twin is like it */
} talk;

typedef struct run {
  soak soak;
  uint32_t decode; /* entry */
  mllm_cache_info info;
  uint64_t page_room; /* bytes of a native page, to whole granules */
  mllm_kv_pool *pool;
  talk talks[LIVE];
  char path[4096];
  uint64_t state;
  uint64_t compared, restored, dropped, ended, admitted;
} run;

static void fail(const char *what) {
  (void)fprintf(stderr, "%s\n", what);
  exit(1);
}

/* Decodes a token; its logits are there until the next run. */
static mllm_status step(run *r, mllm_cache *cache, uint32_t id, mllm_tensor *logits,
                        mllm_error *error) {
  int64_t ids[1] = {id};
  const mllm_tensor input = {.data = ids, .bytes = sizeof ids, .dtype = MLLM_I64, .rank = 2,
                             .dims = {1, 1}};
  *logits = (mllm_tensor){0};
  soak_must(mllm_session_use_cache(r->soak.session, 0, cache, error), error);
  return mllm_run(r->soak.session, r->decode, &input, 1, logits, 1, error);
}

static uint32_t draw(run *r, uint32_t below) { return (uint32_t)(soak_random(&r->state) % below); }

static mllm_kv_statistics counts(const run *r) { return mllm_kv_pool_statistics(r->pool); }

static uint32_t page_tokens(const run *r) { return r->info.page_tokens; }

static void end(talk *t) {
  mllm_error error = {0};
  mllm_cache_destroy(t->cache);
  soak_must(mllm_cache_set_length(t->twin, 0, &error), &error);
  *t = (talk){.twin = t->twin};
}

static void defragment(run *r, uint64_t most) {
  const uint64_t before = counts(r).moved_bytes;
  const uint64_t moved = mllm_kv_defragment_step(r->pool, most);
  if (moved > most) fail("more was moved than may be");
  if (counts(r).moved_bytes - before != moved) fail("a move was not counted");
}

/* Asks for relief; where that gives nothing another conversation sleeps, and at last one ends. */
static void make_room(run *r, const talk *keep, int tries) {
  mllm_error error = {0};
  uint64_t freed = 0;
  (void)mllm_kv_pool_relieve(r->pool, r->info.page_bytes, keep->priority, &freed, &error);
  defragment(r, UINT64_MAX);
  if (freed >= r->info.page_bytes) return;
  talk *other = &r->talks[draw(r, LIVE)];
  if (other == keep || other->cache == NULL) return;
  if (mllm_cache_spill(other->cache, &error) == MLLM_OK || tries < TRIES / 4) return;
  end(other);
  r->ended++;
}

static void must_fit(run *r, const talk *keep, int tries, mllm_status status, mllm_error *error) {
  if (status != MLLM_OUT_OF_MEMORY || tries == TRIES) soak_must(status, error);
  if (status != MLLM_OK) make_room(r, keep, tries);
}

static void wake(run *r, talk *t) {
  mllm_status status = MLLM_OUT_OF_MEMORY;
  for (int tries = 0; status != MLLM_OK; tries++) {
    mllm_error error = {0};
    status = mllm_cache_wake(t->cache, &error);
    must_fit(r, t, tries, status, &error);
  }
}

/* One token more, of the conversation and of its twin. */
static void say(run *r, talk *t, uint32_t id) {
  mllm_status status = MLLM_OUT_OF_MEMORY;
  const uint32_t block = t->length / page_tokens(r);
  static float said[4096];
  mllm_tensor logits;
  for (int tries = 0; status != MLLM_OK; tries++) {
    mllm_error error = {0};
    status = step(r, t->cache, id, &logits, &error);
    must_fit(r, t, tries, status, &error);
  }
  if (logits.bytes > sizeof said) fail("these are too many logits");
  memcpy(said, logits.data, logits.bytes);
  t->ids[t->length] = id;
  t->fallen &= ~(1u << block);
  if (t->is_exact) {
    mllm_error error = {0};
    soak_must(step(r, t->twin, id, &logits, &error), &error);
    if (memcmp(said, logits.data, logits.bytes) != 0) fail("a conversation is not as its twin");
    r->compared++;
  }
  t->length++;
}

/* The twin takes words that are there already. */
static void repeat(run *r, talk *t) {
  for (uint32_t i = 0; i < t->length; i++) {
    mllm_error error = {0};
    mllm_tensor logits;
    soak_must(step(r, t->twin, t->ids[i], &logits, &error), &error);
  }
}

static void speak(run *r, talk *t, uint32_t words) {
  for (uint32_t i = 0; i < words && t->length < TOKENS; i++) say(r, t, draw(r, WORDS));
}

/* What was admitted finds its room in one relief, after moves. */
static void make_all(run *r, const talk *t, uint64_t needed) {
  mllm_error error = {0};
  const mllm_kv_statistics now = counts(r);
  const uint64_t free_bytes = now.room_bytes - now.used_bytes;
  uint64_t freed = 0;
  if (needed > free_bytes)
    soak_must(mllm_kv_pool_relieve(r->pool, needed - free_bytes, t->priority, &freed, &error),
              &error);
  defragment(r, UINT64_MAX);
  if (counts(r).largest_free_bytes < needed) fail("what was admitted found no room");
  r->admitted++;
}

/* A topic's first words, of which some are known perhaps. */
static void start(run *r, talk *t) {
  mllm_error error = {0};
  uint32_t ids[TOKENS], topic = draw(r, TOPICS), count = 32 + draw(r, TOKENS / 2);
  for (uint32_t i = 0; i < count; i++) ids[i] = (topic * 5 + i * (i + topic)) % WORDS;
  t->priority = (mllm_priority)draw(r, 3);
  t->is_exact = true;
  soak_must(mllm_cache_create_in(r->pool, r->soak.model, TOKENS, &t->cache, &error), &error);
  soak_must(mllm_cache_set_priority(t->cache, t->priority, &error), &error);
  soak_must(mllm_cache_adopt(t->cache, ids, count - 1, NULL, &t->length, &error), &error);
  memcpy(t->ids, ids, sizeof ids);
  repeat(r, t);
  if (t->length == 0 && mllm_kv_pool_admits(r->pool, count, t->priority))
    make_all(r, t, (count + page_tokens(r) - 1) / page_tokens(r) * r->page_room);
  while (t->length < count) say(r, t, ids[t->length]);
}

static void fork_it(run *r, const talk *t) {
  mllm_error error = {0};
  talk *other = &r->talks[draw(r, LIVE)];
  if (other == t) return;
  if (other->cache != NULL) end(other);
  mllm_cache *twin = other->twin;
  *other = *t;
  other->twin = twin;
  other->cache = NULL;
  soak_must(mllm_cache_fork(t->cache, &other->cache, &error), &error);
  other->is_exact = t->is_exact && !t->has_fallen;
  if (other->is_exact) repeat(r, other);
}

static void rewind_it(run *r, talk *t) {
  mllm_error error = {0};
  t->length = 1 + draw(r, t->length);
  soak_must(mllm_cache_set_length(t->cache, t->length, &error), &error);
  if (t->is_exact) soak_must(mllm_cache_set_length(t->twin, t->length, &error), &error);
  const uint32_t blocks = (t->length + page_tokens(r) - 1) / page_tokens(r);
  t->fallen &= (1u << blocks) - 1;
}

/* The twin falls alike; where the pool has no room for all that should fall, it is one no more. */
static void demote(run *r, talk *t) {
  const uint32_t recent = draw(r, page_tokens(r));
  const uint64_t before = counts(r).demoted_pages;
  uint32_t expected = 0;
  for (uint32_t i = 0; (i + 1) * page_tokens(r) + recent <= t->length; i++) {
    expected += (t->fallen >> i & 1) == 0;
    t->fallen |= 1u << i;
  }
  (void)mllm_cache_demote(t->cache, recent);
  (void)mllm_cache_demote(t->twin, recent);
  if (counts(r).demoted_pages - before != expected) t->is_exact = false;
  t->has_fallen = t->has_fallen || expected > 0;
}

static void through_a_file(run *r, talk *t) {
  static const uint8_t key[MLLM_CACHE_KEY_BYTES] = {7};
  mllm_error error = {0};
  soak_must(mllm_cache_save(t->cache, r->path, key, &error), &error);
  mllm_cache_destroy(t->cache);
  t->cache = NULL;
  mllm_status status = MLLM_OUT_OF_MEMORY;
  for (int tries = 0; status != MLLM_OK; tries++) {
    status = mllm_cache_restore(r->pool, r->path, key, &t->cache, &error);
    must_fit(r, t, tries, status, &error);
  }
  soak_must(mllm_cache_set_priority(t->cache, t->priority, &error), &error);
  r->restored++;
}

static void event(run *r, talk *t) {
  mllm_error error = {0};
  uint64_t freed = 0;
  const uint32_t what = draw(r, 32);
  if (t->cache != NULL && mllm_cache_state_of(t->cache) == MLLM_CACHE_DROPPED) {
    r->dropped++;
    end(t);
  }
  if (t->cache == NULL) {
    start(r, t);
  } else if (what < 5) {
    (void)mllm_cache_spill(t->cache, &error);
  } else if (what < 7) {
    (void)mllm_kv_pool_relieve(r->pool, draw(r, 4) * r->info.page_bytes,
                               (mllm_priority)draw(r, 3), &freed, &error);
  } else if (what < 10) {
    defragment(r, draw(r, 3) * r->page_room + draw(r, 1000));
  } else if (what == 10) {
    end(t);
  } else {
    wake(r, t);
    if (what == 11) fork_it(r, t);
    if (what == 12) rewind_it(r, t);
    if (what == 13) demote(r, t);
    if (what == 14) through_a_file(r, t);
    if (what < 17) soak_must(mllm_cache_publish(t->cache, t->ids, t->length, NULL, &error), &error);
    speak(r, t, 1 + draw(r, 12));
    if (t->length == TOKENS) end(t);
  }
}

/* Bytes of the only file that has no name any more: the pool's. */
static uint64_t file_bytes(void) {
  for (int file = 3; file < 64; file++) {
    struct stat found;
    if (fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 0)
      return (uint64_t)found.st_size;
  }
  return 0;
}

static void open_run(run *r, const char *bundle, const char *folder) {
  mllm_error error = {0};
  soak_open(&r->soak, bundle);
  const mllm_model *model = r->soak.model;
  r->decode = (uint32_t)mllm_model_find_entry(model, "decode");
  soak_must(mllm_model_cache(model, 0, &r->info), &error);
  (void)snprintf(r->path, sizeof r->path, "%s/talk.kv", folder);
  soak_must(mllm_kv_pool_create(model, 0, ROOM * r->info.page_bytes, &r->pool, &error), &error);
  soak_must(mllm_kv_pool_set_spill(r->pool, folder, FILE_PAGES * r->info.page_bytes, &error),
            &error);
  soak_must(mllm_kv_pool_allow(r->pool, MLLM_KV_MAY_DROP, 0, &error), &error);
  for (int i = 0; i < LIVE; i++)
    soak_must(mllm_cache_create(model, 0, TOKENS + 2 * r->info.page_tokens, &r->talks[i].twin,
                                &error), &error);
  mllm_tensor logits;
  mllm_cache *cache;
  soak_must(mllm_cache_create_in(r->pool, model, TOKENS, &cache, &error), &error);
  soak_must(step(r, cache, 1, &logits, &error), &error);
  r->page_room = counts(r).used_bytes;
  mllm_cache_destroy(cache);
}

static void close_run(run *r) {
  mllm_error error = {0};
  for (int i = 0; i < LIVE; i++) {
    mllm_cache_destroy(r->talks[i].cache);
    mllm_cache_destroy(r->talks[i].twin);
  }
  const mllm_kv_statistics left = counts(r);
  const uint32_t pages = left.pages[0] + left.pages[1] + left.pages[2];
  if (left.caches + left.asleep_pages + left.shared_pages > 0 || pages != left.published_pages)
    fail("pages are left when nobody talks any more");
  soak_must(mllm_kv_pool_set_spill(r->pool, NULL, 0, &error), &error);
  soak_must(mllm_kv_pool_destroy(r->pool, &error), &error);
  soak_close(&r->soak);
}

int main(int argc, char **argv) {
  static run r;
  if (argc != 5) return 2;
  const uint64_t events = strtoull(argv[3], NULL, 10);
  r.state = strtoull(argv[4], NULL, 10);
  open_run(&r, argv[1], argv[2]);
  uint64_t warm = 0, most = 0;
  for (uint64_t i = 0; i < events; i++) {
    event(&r, &r.talks[draw(&r, LIVE)]);
    if (i % 64 != 0) continue;
    const uint64_t now = soak_resident();
    if (i < events / 5 && now > warm) warm = now;
    if (now > most) most = now;
    if (file_bytes() > FILE_PAGES * r.info.page_bytes) fail("the file is larger than it may be");
  }
  const mllm_kv_statistics counted = counts(&r);
#define U(number) (unsigned long long)(number)
  (void)printf("{\"compared\": %llu, \"woken_pages\": %llu, \"file_pages\": %d, "
               "\"restored\": %llu, \"dropped\": %llu, \"ended\": %llu, \"admitted\": %llu, "
               "\"adopted_tokens\": %llu, \"demoted_pages\": %llu, \"moved_bytes\": %llu, "
               "\"growth_bytes\": %llu}\n",
               U(r.compared), U(counted.woken_pages), FILE_PAGES, U(r.restored), U(r.dropped),
               U(r.ended), U(r.admitted), U(counted.adopted_tokens), U(counted.demoted_pages),
               U(counted.moved_bytes), U(most > warm ? most - warm : 0));
  close_run(&r);
  return 0;
}

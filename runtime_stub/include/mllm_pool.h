/* mllm_pool.h - one reserved region for all buffers of a process: arenas, caches, media.
 *
 * Buffers of more than 512 KiB are runs of whole MiB, as many as are needed; smaller ones come from slabs.
 * From 128 KiB on a buffer is aligned to 256 KiB, below that to 64 bytes. Every function may be called by
 * several threads at a time. A pool takes its tables when it is made; no call after that allocates.
 */
#ifndef MLLM_POOL_H
#define MLLM_POOL_H

#include "mllm.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- Memory domains ---------------------------------------------------------------------------- */

/* Who reads and writes a buffer, and through what. */
typedef enum mllm_memory {
  MLLM_MEMORY_HOST = 0,         /* the processor, through its caches */
  MLLM_MEMORY_UNCACHED = 1,     /* the processor, past its caches */
  MLLM_MEMORY_NPU_COHERENT = 2, /* an accelerator that sees the processor's caches */
  MLLM_MEMORY_NPU = 3,          /* one that sees memory alone */
  MLLM_MEMORY_GPU = 4,          /* likewise, where the buffer is visible to it */
  MLLM_MEMORY_DOMAINS = 5
} mllm_memory;

typedef enum mllm_access {
  MLLM_ACCESS_READ = 1,
  MLLM_ACCESS_WRITE = 2 /* of all or a part, and reading too */
} mllm_access;

/* What brings the processor's caches and memory together. */
typedef enum mllm_maintenance {
  MLLM_MAINTAIN_NONE = 0,
  MLLM_MAINTAIN_CLEAN = 1,      /* written lines go to memory */
  MLLM_MAINTAIN_INVALIDATE = 2, /* lines are dropped: the next read sees memory */
  MLLM_MAINTAIN_FLUSH = 3       /* both */
} mllm_maintenance;

/* ---- Backends: where the region comes from ------------------------------------------------------ */

enum {
  MLLM_POOL_HUGE_PAGES = 1, /* ask for them */
  MLLM_POOL_LOCKED = 2,     /* keep pages in memory once they are there */
  MLLM_POOL_STRICT = 4      /* where the system refuses one of these, there is no pool */
};

typedef struct mllm_pool_region {
  unsigned char *base; /* aligned to 1 MiB */
  uint64_t bytes;
  int fd;           /* what other processes map; -1: none */
  uint32_t refused; /* flags that the system refused */
  void *mapping;    /* the backend's own, as are mapped and own */
  uint64_t mapped;
  void *own;
} mllm_pool_region;

/* A stretch of the region and what it is, for messages. */
typedef struct mllm_pool_stretch {
  uint64_t offset;
  uint64_t bytes;
  const char *name;
  const char *owner;
} mllm_pool_stretch;

/* domains has a bit for each mllm_memory that the region serves. maintain is NULL where all of them see the
 * same bytes. at is NULL where every domain has the region's own addresses; begin is NULL where accesses are
 * not checked. drop gives the pages of a part back to the system, to come again as zeros when they are
 * touched; it is NULL where addresses and memory are one and the same. The pool calls all but reserve and give_back under its lock. */
typedef struct mllm_pool_backend {
  const char *name;
  void *context;
  uint32_t domains;
  mllm_status (*reserve)(void *context, uint64_t bytes, uint32_t flags, mllm_pool_region *region,
                         mllm_error *error);
  void (*give_back)(void *context, mllm_pool_region *region);
  mllm_status (*maintain)(void *context, mllm_pool_region *region, mllm_maintenance operation,
                          const mllm_pool_stretch *stretch, mllm_error *error);
  void *(*at)(void *context, const mllm_pool_region *region, mllm_memory domain, uint64_t offset);
  mllm_status (*begin)(void *context, mllm_pool_region *region, mllm_memory domain,
                       mllm_access access, const mllm_pool_stretch *stretch, mllm_error *error);
  mllm_status (*drop)(void *context, mllm_pool_region *region, uint64_t offset, uint64_t bytes,
                      mllm_error *error);
} mllm_pool_backend;

/* Memory of this process alone. */
const mllm_pool_backend *mllm_pool_anonymous(void);
/* A memory file (Linux) that other processes can map. */
const mllm_pool_backend *mllm_pool_memfd(void);
/* A heap of /dev/dma_heap (Linux): context is its path, "/dev/dma_heap/system". */
mllm_pool_backend mllm_pool_dma_heap(const char *path);
/* Memory as a device without coherent caches sees it: the processor and the device have a copy each, and
 * bytes move by maintenance alone. An access that needs an operation which did not take place fails and
 * names buffer, owner and operation. For tests. */
const mllm_pool_backend *mllm_pool_checking(void);

/* ---- Pools -------------------------------------------------------------------------------------- */

/* What a buffer is for: each has its own figures. */
typedef enum mllm_pool_type {
  MLLM_POOL_ARENA = 0,
  MLLM_POOL_CACHE = 1,
  MLLM_POOL_MEDIA = 2,
  MLLM_POOL_OTHER = 3,
  MLLM_POOL_TYPES = 4
} mllm_pool_type;

typedef struct mllm_pool_options {
  uint64_t bytes;    /* of the region, rounded up to 1 MiB; at most 1 TiB */
  uint32_t buffers;  /* at most so many at a time; 0: 65,536 */
  uint32_t flags;    /* MLLM_POOL_HUGE_PAGES | MLLM_POOL_LOCKED | MLLM_POOL_STRICT */
  uint64_t watermarks[MLLM_POOL_TYPES]; /* bytes from which buffers are counted as over; 0: none */
  const mllm_pool_backend *backend;     /* NULL: anonymous; it outlives the pool */
} mllm_pool_options;

/* Reserves a region; its pages come when they are touched. Where its backend can drop pages and neither huge
 * pages nor locking are asked for, the region has a quarter more addresses than bytes: a long buffer then
 * finds room past short ones, and free pages elsewhere go back to the system for it. On failure *pool is
 * NULL. */
mllm_status mllm_pool_create(const mllm_pool_options *options, mllm_pool **pool, mllm_error *error);
/* Gives the region back, buffers or not; mllm_pool_report tells before what is left. */
void mllm_pool_destroy(mllm_pool *pool);

/* Has the system provide the pages of the first bytes of the region, as far as buffers elsewhere leave
 * memory for them. Buffers keep what they hold. */
mllm_status mllm_pool_warm(mllm_pool *pool, uint64_t bytes, mllm_error *error);

/* From now on mllm_pool_take is refused and counted (on), or not (off). */
void mllm_pool_forbid(mllm_pool *pool, int on);

/* ---- Buffers ------------------------------------------------------------------------------------ */

/* A buffer by number: that of one which is gone is refused, though its memory was given again. */
typedef uint64_t mllm_buffer;
#define MLLM_NO_BUFFER ((mllm_buffer)0)

typedef struct mllm_pool_request {
  uint64_t bytes;
  mllm_pool_type type;
  const char *name;  /* "arena"; both are copied, at most 31 bytes of each */
  const char *owner; /* "session 3" */
} mllm_pool_request;

/* A buffer with one reference. Bytes are what the memory held before, or zero. Without memory *buffer is
 * MLLM_NO_BUFFER and nothing has changed. */
mllm_status mllm_pool_take(mllm_pool *pool, const mllm_pool_request *request, mllm_buffer *buffer,
                           mllm_error *error);
mllm_status mllm_pool_retain(mllm_pool *pool, mllm_buffer buffer, mllm_error *error);
/* The last reference gives the memory back: at once, or when the inferences that had begun have ended. */
mllm_status mllm_pool_release(mllm_pool *pool, mllm_buffer buffer, mllm_error *error);
/* References; 0 for a buffer that is gone. */
uint32_t mllm_pool_references(mllm_pool *pool, mllm_buffer buffer);
/* Where a buffer begins in the region, and its bytes as asked for. */
mllm_status mllm_pool_place(mllm_pool *pool, mllm_buffer buffer, uint64_t *offset, uint64_t *bytes,
                            mllm_error *error);

/* An inference: what is released while it runs stays until it ends. At most 64 at a time. */
mllm_status mllm_pool_begin(mllm_pool *pool, uint32_t *ticket, mllm_error *error);
void mllm_pool_end(mllm_pool *pool, uint32_t ticket);

/* Takes a buffer for a domain, does what the caches need for that, and gives its address there. Several
 * may read; who writes is alone. Every access is given back with mllm_pool_access_end. */
mllm_status mllm_pool_access(mllm_pool *pool, mllm_buffer buffer, mllm_memory domain,
                             mllm_access access, void **data, mllm_error *error);
mllm_status mllm_pool_access_end(mllm_pool *pool, mllm_buffer buffer, mllm_memory domain,
                                 mllm_access access, mllm_error *error);

/* ---- Figures ------------------------------------------------------------------------------------ */

typedef struct mllm_pool_type_statistics {
  uint64_t used;      /* bytes of buffers, as rounded */
  uint64_t peak;      /* the most that used was */
  uint64_t requested; /* bytes of buffers, as asked for */
  uint64_t buffers;
  uint64_t over; /* buffers given above the watermark so far */
} mllm_pool_type_statistics;

typedef struct mllm_pool_statistics {
  uint64_t bytes;   /* of memory */
  uint64_t used;    /* by buffers, as rounded */
  uint64_t peak;
  uint64_t requested;
  uint64_t holes;   /* of slabs: neither used nor free for buffers of another size */
  uint64_t largest; /* buffer that there is room for */
  uint64_t taken;   /* buffers so far */
  uint64_t failed;  /* requests without memory so far */
  uint64_t forbidden; /* requests after mllm_pool_forbid so far */
  uint64_t waiting; /* buffers without references that an inference holds up */
  uint64_t maintained[4]; /* operations so far, by mllm_maintenance */
  uint64_t dropped; /* bytes so far of free pages that the system got back for others */
  uint32_t refused; /* flags that the system refused */
  mllm_pool_type_statistics types[MLLM_POOL_TYPES];
} mllm_pool_statistics;

void mllm_pool_statistics_of(mllm_pool *pool, mllm_pool_statistics *statistics);

/* Bytes that are free, but not for buffers of the given size: no run of addresses is long enough, or they are
 * holes of slabs. */
uint64_t mllm_pool_external_waste(mllm_pool *pool, uint64_t bytes);

typedef struct mllm_pool_left {
  const char *name;
  const char *owner;
  uint64_t bytes;
  uint32_t references;
} mllm_pool_left;

/* Calls back for every buffer that has references, under the pool's lock; owner NULL: of all owners. Gives
 * their number. report may be NULL. */
uint64_t mllm_pool_report(mllm_pool *pool, const char *owner,
                          void (*report)(void *context, const mllm_pool_left *left), void *context);

/* ---- Other processes ---------------------------------------------------------------------------- */

/* A buffer of another process, mapped. */
typedef struct mllm_shared {
  void *data;
  uint64_t bytes;
  void *mapping; /* its own, as mapped */
  uint64_t mapped;
} mllm_shared;

/* Passes a buffer over a connected UNIX socket. The receiver can map the whole region; it holds no reference,
 * so the sender keeps one for it and releases that when the socket closes, however the peer ended. */
mllm_status mllm_pool_send(mllm_pool *pool, mllm_buffer buffer, int socket, mllm_error *error);
mllm_status mllm_shared_receive(int socket, mllm_shared *shared, mllm_error *error);
void mllm_shared_unmap(mllm_shared *shared);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MLLM_POOL_H */

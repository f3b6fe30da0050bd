/* allocations.h - counts allocations, or ends the process at the first one behind a point. */
#ifndef MLLM_ALLOCATIONS_H
#define MLLM_ALLOCATIONS_H

#include <stddef.h>

/* Whether calls of malloc and the like can be seen here; without, the rest does nothing. */
int mllm_allocations_are_seen(void);

/* So far, of all threads. */
size_t mllm_allocations_count(void);

/* on: from now on an allocation, of whatever thread, ends the process with exit status 70 and a line on
 * stderr. 0: no more. */
void mllm_allocations_forbid(int on);

#endif /* MLLM_ALLOCATIONS_H */

/* allocations.h - ends the process at the first allocation behind a point. */
#ifndef MLLM_ALLOCATIONS_H
#define MLLM_ALLOCATIONS_H

/* Whether calls of malloc and the like can be seen here; without, the next function does nothing. */
int mllm_allocations_are_seen(void);

/* on: from now on an allocation, of whatever thread, ends the process with exit status 70 and a line on
 * stderr. 0: no more. */
void mllm_allocations_forbid(int on);

#endif /* MLLM_ALLOCATIONS_H */

/* Allocates in a thread, then behind mllm_allocations_forbid where the argument is "late". */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocations.h"

static void *volatile kept;

static void *take(void *unused) {
  kept = malloc(9);
  return unused;
}

int main(int argc, char **argv) {
  pthread_t thread;
  if (argc != 2 || pthread_create(&thread, NULL, take, NULL) != 0) return 1;
  (void)pthread_join(thread, NULL);
  mllm_allocations_forbid(1);
  if (strcmp(argv[1], "late") == 0) (void)take(NULL);
  return 3;
}

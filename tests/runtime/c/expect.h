/* expect.h - a condition of a C test: told with its place, and the program ends with 1. */
#ifndef MLLM_TEST_EXPECT_H
#define MLLM_TEST_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (condition) break;                                                          \
    (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    exit(1);                                                                       \
  } while (0)

#endif /* MLLM_TEST_EXPECT_H */

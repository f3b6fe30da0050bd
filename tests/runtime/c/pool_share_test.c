/* pool_share_test.c - buffers that another process maps, also one that is killed. */
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "mllm_pool.h"

#define MIB ((uint64_t)1 << 20)

static mllm_pool *pool_on(const mllm_pool_backend *backend) {
  mllm_pool *pool = NULL;
  mllm_error error;
  const mllm_pool_options options = {.bytes = 4 * MIB, .backend = backend};
  EXPECT(mllm_pool_create(&options, &pool, &error) == MLLM_OK);
  return pool;
}

static mllm_buffer take(mllm_pool *pool, uint64_t bytes, void **data) {
  mllm_buffer buffer = MLLM_NO_BUFFER;
  const mllm_pool_request request = {.bytes = bytes, .name = "frame", .owner = "camera"};
  EXPECT(mllm_pool_take(pool, &request, &buffer, NULL) == MLLM_OK);
  EXPECT(mllm_pool_access(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, data, NULL) == MLLM_OK);
  EXPECT(mllm_pool_access_end(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, NULL) == MLLM_OK);
  return buffer;
}

/* The peer adds one to every byte, says so, and waits to be killed. */
static void peer(int socket) {
  mllm_shared shared;
  if (mllm_shared_receive(socket, &shared, NULL) != MLLM_OK) _exit(1);
  for (uint64_t i = 0; i < shared.bytes; i++) ((unsigned char *)shared.data)[i]++;
  if (write(socket, "x", 1) != 1) _exit(1);
  for (;;) (void)pause();
}

static void a_killed_peer_does_no_harm(void) {
  int ends[2];
  char byte = 0;
  void *data = NULL;
  mllm_error error;
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  mllm_pool *pool = pool_on(mllm_pool_memfd());
  (void)take(pool, 100, &data);
  const mllm_buffer buffer = take(pool, 5001, &data);
  memset(data, 7, 5001);
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    (void)close(ends[0]);
    peer(ends[1]);
  }
  (void)close(ends[1]);
  EXPECT(mllm_pool_retain(pool, buffer, NULL) == MLLM_OK); /* for the peer */
  EXPECT(mllm_pool_send(pool, buffer, ends[0], &error) == MLLM_OK);
  EXPECT(read(ends[0], &byte, 1) == 1);
  EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  EXPECT(read(ends[0], &byte, 1) == 0); /* which is how its end is known */
  EXPECT(mllm_pool_release(pool, buffer, NULL) == MLLM_OK);
  for (uint64_t i = 0; i < 5001; i++) EXPECT(((unsigned char *)data)[i] == 8);
  EXPECT(mllm_pool_references(pool, buffer) == 1);
  EXPECT(mllm_pool_send(pool, buffer, ends[0], &error) == MLLM_IO);
  EXPECT(strcmp(error.code, "MLC-X066") == 0);
  EXPECT(mllm_pool_release(pool, buffer, NULL) == MLLM_OK);
  EXPECT(mllm_pool_report(pool, NULL, NULL, NULL) == 1);
  mllm_pool_destroy(pool);
  (void)close(ends[0]);
}

static void nonsense_is_refused(void) {
  int ends[2];
  void *data = NULL;
  mllm_error error;
  mllm_shared shared;
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  mllm_pool *pool = pool_on(NULL);
  EXPECT(mllm_pool_send(pool, take(pool, 10, &data), ends[0], &error) == MLLM_UNSUPPORTED);
  EXPECT(write(ends[0], "0123456789abcdef", 16) == 16);
  EXPECT(mllm_shared_receive(ends[1], &shared, &error) == MLLM_IO && shared.data == NULL);
  (void)close(ends[0]);
  EXPECT(mllm_shared_receive(ends[1], &shared, &error) == MLLM_IO);
  EXPECT(strstr(error.message, "or is gone") != NULL);
  mllm_pool_destroy(pool);
  (void)close(ends[1]);
}

int main(void) {
  a_killed_peer_does_no_harm();
  nonsense_is_refused();
  return 0;
}

/* frame_test.c - a camera in another process: its frame is prepared where it lies, byte for byte as a copy. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "image.h"
#include "mllm_pool.h"

enum { WIDTH = 90, HEIGHT = 46, STRIDE = 128, OUT = 32 };
enum { LUMA = STRIDE * HEIGHT, CHROMA = STRIDE * (HEIGHT / 2) };

static const mllm_image_config config = {
    .width = OUT, .height = OUT, .mean = {0.5f, 0.4f, 0.3f}, .std = {0.2f, 0.3f, 0.4f}};

static void draw(uint8_t *bytes) {
  for (int i = 0; i < LUMA + CHROMA; i++) bytes[i] = (uint8_t)(i * 131 + i / STRIDE * 17);
}

static mllm_frame frame_at(const uint8_t *luma, const uint8_t *chroma) {
  return (mllm_frame){.pixels = MLLM_NV12,
                      .colours = MLLM_BT709,
                      .width = WIDTH,
                      .height = HEIGHT,
                      .planes = {luma, chroma},
                      .strides = {STRIDE, STRIDE}};
}

/* The camera: its own pool, a frame in a buffer for media, and the buffer over the socket. */
static int produce(int socket) {
  mllm_pool *pool = NULL;
  mllm_buffer buffer;
  void *data = NULL;
  char byte;
  const mllm_pool_options options = {.bytes = 1 << 20, .backend = mllm_pool_memfd()};
  const mllm_pool_request request = {
      .bytes = LUMA + CHROMA, .type = MLLM_POOL_MEDIA, .name = "frame", .owner = "camera"};
  EXPECT(mllm_pool_create(&options, &pool, NULL) == MLLM_OK);
  EXPECT(mllm_pool_take(pool, &request, &buffer, NULL) == MLLM_OK);
  EXPECT(mllm_pool_access(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, &data, NULL) ==
         MLLM_OK);
  draw(data);
  EXPECT(mllm_pool_access_end(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, NULL) == MLLM_OK);
  EXPECT(mllm_pool_send(pool, buffer, socket, NULL) == MLLM_OK);
  EXPECT(read(socket, &byte, 1) == 0); /* the consumer is done */
  mllm_pool_destroy(pool);
  (void)close(socket);
  return 0;
}

static void a_frame_of_another_process_is_read_in_place(void) {
  int ends[2], status = 0;
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    (void)close(ends[0]);
    exit(produce(ends[1]));
  }
  (void)close(ends[1]);
  mllm_shared shared;
  EXPECT(mllm_shared_receive(ends[0], &shared, NULL) == MLLM_OK);
  EXPECT(shared.bytes >= LUMA + CHROMA);
  static float seen[3 * OUT * OUT], want[3 * OUT * OUT];
  const uint8_t *there = shared.data;
  const mllm_frame frame = frame_at(there, there + LUMA);
  EXPECT(mllm_frame_check(&frame, NULL) == MLLM_OK);
  EXPECT(mllm_image_prepare(&frame, &config, seen, NULL) == MLLM_OK);
  mllm_shared_unmap(&shared);
  (void)close(ends[0]);
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  static uint8_t own[LUMA + CHROMA];
  draw(own);
  const mllm_frame copy = frame_at(own, own + LUMA);
  EXPECT(mllm_image_prepare(&copy, &config, want, NULL) == MLLM_OK);
  EXPECT(memcmp(seen, want, sizeof seen) == 0);
}

/* Planes that end with their last pixel: a byte more would be found by the sanitizer. */
static void nothing_behind_the_last_pixel_is_read(void) {
  const size_t luma = STRIDE * (HEIGHT - 1) + WIDTH, chroma = STRIDE * (HEIGHT / 2 - 1) + WIDTH;
  uint8_t *first = malloc(luma), *second = malloc(chroma);
  static float pixels[3 * OUT * OUT];
  EXPECT(first != NULL && second != NULL);
  memset(first, 255, luma);
  memset(second, 0, chroma);
  mllm_frame frame = frame_at(first, second);
  for (frame.colours = MLLM_BT601; frame.colours <= MLLM_BT709_FULL; frame.colours++)
    EXPECT(mllm_image_prepare(&frame, &config, pixels, NULL) == MLLM_OK);
  free(first);
  free(second);
}

int main(void) {
  a_frame_of_another_process_is_read_in_place();
  nothing_behind_the_last_pixel_is_read();
  return 0;
}

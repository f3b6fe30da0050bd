/* Reading UTF-8 and the classes of code points. */
#ifndef MLLM_UTF8_H
#define MLLM_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define MLLM_REPLACEMENT 0xFFFDu

/* The code point at text[0], with its bytes in *length. Ill-formed: U+FFFD, and *length covers the
 * maximal subpart (Unicode, section 3.9) that a decoder replaces. `size` > 0. */
uint32_t mllm_utf8_read(const char *text, size_t size, size_t *length);

/* How many bytes at the start of text[0 .. size) could still become one character if more bytes
 * came; 0: none. */
size_t mllm_utf8_unfinished(const char *text, size_t size);

#endif

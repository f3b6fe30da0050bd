/* layout.h - how a page holds keys and values: [layer][kind][head][token][dim].
 *
 * A page is native, each layer in its format, or demoted to codes of 4 bits. Rows go in and out as
 * floats. Within a head, numbers that codes need besides stand before them: 8 bits have a scale for
 * each token; 4-bit keys a step and a least number for each channel of 32 tokens, values for each
 * token. All of those are half floats.
 */
#ifndef MLLM_KV_LAYOUT_H
#define MLLM_KV_LAYOUT_H

#include <stdbool.h>

#include "mllm.h"
#include "mllm_program.h"
#include "row_codes.h"

enum { MLLM_KV_MAX_LAYERS = 65536 };

typedef enum mllm_kv_state {
  MLLM_KV_NATIVE = 0,
  MLLM_KV_DEMOTED = 1,
  MLLM_KV_DEMOTED_SINKS = 2, /* the page of the first tokens: its first 32 stay native */
  MLLM_KV_STATES = 3
} mllm_kv_state;

typedef struct mllm_kv_layout {
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t page_tokens;
  uint32_t recent; /* 0: pages are demoted under pressure alone; else by length: those that lie
                      wholly before the page of the next token and so many tokens more */
  size_t bytes[MLLM_KV_STATES]; /* of a page; 0: pages are never so */
  uint32_t *formats;            /* [layers] mllm_kv_format */
  size_t *offsets;              /* [MLLM_KV_STATES, layers] bytes from a page's start */
  float *key_scales;            /* [layers, kv_heads, head_dim], or NULL: ones */
} mllm_kv_layout;

/* Bytes of a native page of such a cache; 0 where it has no size that memory holds. */
uint64_t mllm_kv_page_bytes(const mllm_cache_info *info);

/* As the info's formats, key_scales and recent say. With recent, layers of other formats than
 * MLLM_KV_4 stay native in a demoted page. Refuses
 * what has no size or cannot be. */
mllm_status mllm_kv_layout_make(mllm_kv_layout *layout, const mllm_cache_info *info,
                                mllm_error *error);
void mllm_kv_layout_free(mllm_kv_layout *layout);

/* Writes count rows of head_dim floats, stride floats apart, into a native page. */
void mllm_kv_write_rows(const mllm_kv_layout *layout, unsigned char *page, uint32_t layer,
                        uint32_t kind, uint32_t head, uint32_t token, const float *rows,
                        size_t stride, uint32_t count);

/* Reads count rows, which stay within the page, into out[count, head_dim]. */
void mllm_kv_read_rows(const mllm_kv_layout *layout, const unsigned char *page,
                       mllm_kv_state state, uint32_t layer, uint32_t kind, uint32_t head,
                       uint32_t token, uint32_t count, float *out);

/* Where the rows from a token on lie, if those of the page are all stored in the layer's format. */
bool mllm_kv_rows_in_place(const mllm_kv_layout *layout, const unsigned char *page,
                           mllm_kv_state state, uint32_t layer, uint32_t kind, uint32_t head,
                           uint32_t token, mllm_kv_stored *rows);

/* Copies the first rows of every head of a native page, and what their codes need. */
void mllm_kv_copy_tokens(const mllm_kv_layout *layout, const unsigned char *from, unsigned char *to,
                         uint32_t tokens);

/* Makes the demoted page of a native one, whose rows are all written. */
void mllm_kv_demote(const mllm_kv_layout *layout, const unsigned char *native,
                    unsigned char *demoted, mllm_kv_state to);

/* Makes a native page again of what a demoted one means. */
void mllm_kv_promote(const mllm_kv_layout *layout, const unsigned char *demoted,
                     mllm_kv_state from, unsigned char *native);

/* The tokens that a query at a position reads as 4 bits, but for the sinks: those before this one.
 */
uint32_t mllm_kv_old(const mllm_kv_layout *layout, uint32_t position);

/* rows[count, head_dim] become what 4 bits mean of them; keys begin and end with
 * a sub-block. */
void mllm_kv_round_to_4(float *rows, uint32_t kind, uint32_t count, size_t head_dim);

#endif /* MLLM_KV_LAYOUT_H */

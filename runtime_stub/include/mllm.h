/* mllm.h - the one public header of the mllm runtime.
 *
 * The caller owns all memory that it passes in; a model and a session own what they made and give it
 * back in their destroy function. A function that can fail returns an mllm_status and fills an
 * mllm_error where one is given. After mllm_session_create returns, nothing allocates.
 *
 * Threads: a model is read-only and may be shared; a session serves one caller at a time.
 */
#ifndef MLLM_H
#define MLLM_H

#include <stddef.h>
#include <stdint.h>
#include "mllm_frame.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- Versions -------------------------------------------------------------------------------- */

enum {
  MLLM_ABI_VERSION = 1, /* of this header and of program.bin */
  MLLM_VERSION_MAJOR = 0,
  MLLM_VERSION_MINOR = 1,
  MLLM_VERSION_PATCH = 0
};

/* The library's own numbers, to be compared with the header's. The string is "0.1.0". */
uint32_t mllm_abi_version(void);
const char *mllm_version(void);

/* ---- Status ---------------------------------------------------------------------------------- */

typedef enum mllm_status {
  MLLM_OK = 0,
  MLLM_INVALID_ARGUMENT = 1, /* the caller's: unknown name, wrong dtype, missing input */
  MLLM_INVALID_PROGRAM = 2,  /* program bytes that break the format */
  MLLM_UNSUPPORTED = 3,      /* a kernel, dtype or format that this build lacks */
  MLLM_OUT_OF_MEMORY = 4,
  MLLM_OUT_OF_BOUNDS = 5, /* a dimension over its compiled bound, a full cache, a short buffer */
  MLLM_IO = 6,            /* a file could not be read */
  MLLM_CORRUPT = 7,       /* a bundle whose bytes are not what its manifest says */
  MLLM_UNTRUSTED = 8,     /* no signature, or a key that is not trusted */
  MLLM_INTERNAL = 9
} mllm_status;

enum { MLLM_MAX_RANK = 8, MLLM_CODE_BYTES = 16, MLLM_LOCATION_BYTES = 160, MLLM_MESSAGE_BYTES = 352 };

/* One located line: "{location}: error: {message} [{code}]". Unused strings are "". */
typedef struct mllm_error {
  mllm_status status;
  char code[MLLM_CODE_BYTES];         /* "MLC-X005" */
  char location[MLLM_LOCATION_BYTES]; /* "decode: /model/layers.0/mlp/gate_proj/MatMul" */
  char message[MLLM_MESSAGE_BYTES];
} mllm_error;

/* "out of bounds" and so on: a static string. */
const char *mllm_status_name(mllm_status status);

/* ---- Tensors --------------------------------------------------------------------------------- */

typedef enum mllm_dtype {
  MLLM_F32 = 1,
  MLLM_F64 = 2,
  MLLM_F16 = 3,
  MLLM_BF16 = 4,
  MLLM_I64 = 5,
  MLLM_I32 = 6,
  MLLM_I16 = 7,
  MLLM_I8 = 8,
  MLLM_U64 = 9,
  MLLM_U32 = 10,
  MLLM_U16 = 11,
  MLLM_U8 = 12,
  MLLM_BOOL = 13 /* one byte, 0 or 1 */
} mllm_dtype;

/* Bytes of an element; 0 for a number that is no dtype. */
size_t mllm_dtype_bytes(uint32_t dtype);

/* "float32" and so on, as NumPy calls them: a static string. */
const char *mllm_dtype_name(uint32_t dtype);

/* A dense row-major tensor in the caller's memory, aligned to its element.
 * As input: name (or NULL, then its place in the array counts), dtype, rank, dims and data are read.
 * As output: data with its capacity in bytes are read, or data = NULL asks for the tensor's default
 * place in the session's arena; data, bytes (used), dtype, rank and dims are written. Memory in the
 * arena is valid until the next mllm_run. */
typedef struct mllm_tensor {
  const char *name;
  void *data;
  size_t bytes;
  uint32_t dtype;
  uint32_t rank;
  int64_t dims[MLLM_MAX_RANK];
} mllm_tensor;

/* ---- Model: a checked program and its weights -------------------------------------------------- */

typedef struct mllm_model mllm_model;
typedef struct mllm_session mllm_session;

typedef struct mllm_model_options {
  uint32_t abi; /* MLLM_ABI_VERSION of the caller's header */
  /* "scalar", "avx2", "avxvnni", "avx512", "avx512vnni"; NULL: the environment's MLLM_CPU, else the best there is */
  const char *cpu;
} mllm_model_options;

/* Reads a program (copied) whose weight tensors lie in weights (not copied: they outlive the model;
 * aligned to 64 bytes). options may be NULL. On failure *model is NULL. */
mllm_status mllm_model_create(const void *program, size_t program_bytes, const void *weights,
                              size_t weight_bytes, const mllm_model_options *options,
                              mllm_model **model, mllm_error *error);
void mllm_model_destroy(mllm_model *model);

/* The variant of the kernels that was chosen: "avx512vnni". */
const char *mllm_model_cpu(const mllm_model *model);
uint64_t mllm_model_arena_bytes(const mllm_model *model);

/* What an entry takes or gives. A dim is its value, or -1 where it depends on symbols. */
typedef struct mllm_tensor_info {
  const char *name;
  uint32_t dtype;
  uint32_t rank;
  int64_t dims[MLLM_MAX_RANK];
  const char *symbols[MLLM_MAX_RANK]; /* the symbol's name where the dim is one bare symbol */
  uint32_t exprs[MLLM_MAX_RANK];      /* for mllm_model_dim_text */
  uint64_t max_bytes;                 /* at the compiled bounds */
  uint64_t arena_offset;              /* UINT64_MAX: it has no default place, the caller must bind it */
} mllm_tensor_info;

typedef struct mllm_entry_info {
  const char *name;
  const char *role; /* "encoder", "projector", "language-model", ... */
  uint32_t inputs;
  uint32_t outputs;
  uint32_t stages;
  int32_t cache; /* index of its KV cache; -1: none */
} mllm_entry_info;

typedef struct mllm_symbol_info { const char *name; int64_t max; } mllm_symbol_info;

typedef struct mllm_cache_info {
  const char *name;
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t page_tokens;
  uint32_t max_tokens;
  uint32_t recent;     /* tokens before a page that keep 8 bits; 0: all keep their format */
  uint64_t page_bytes; /* of one page: all layers, keys and values */
  const uint32_t *formats;    /* [layers] mllm_kv_format; NULL: all are f32 */
  const uint16_t *key_scales; /* half floats [layers, kv_heads, head_dim]; NULL: ones */
} mllm_cache_info;

uint32_t mllm_model_entries(const mllm_model *model);
uint32_t mllm_model_symbols(const mllm_model *model);
uint32_t mllm_model_caches(const mllm_model *model);
/* The entry's index, or -1. */
int32_t mllm_model_find_entry(const mllm_model *model, const char *name);
mllm_status mllm_model_entry(const mllm_model *model, uint32_t entry, mllm_entry_info *info);
mllm_status mllm_model_input(const mllm_model *model, uint32_t entry, uint32_t index,
                             mllm_tensor_info *info);
mllm_status mllm_model_output(const mllm_model *model, uint32_t entry, uint32_t index,
                              mllm_tensor_info *info);
mllm_status mllm_model_symbol(const mllm_model *model, uint32_t symbol, mllm_symbol_info *info);
mllm_status mllm_model_cache(const mllm_model *model, uint32_t cache, mllm_cache_info *info);
/* A weight by its name, to look a row of an embedding up; NULL data where there is none. */
mllm_status mllm_model_weight(const mllm_model *model, const char *name, mllm_tensor *weight);
/* Writes a dim as text ("past_sequence_length + sequence_length"), always NUL-terminated. */
mllm_status mllm_model_dim_text(const mllm_model *model, uint32_t expr, char *text, size_t bytes);

/* ---- Session: memory, threads and cache of one conversation ------------------------------------ */

/* mllm_pool.h makes one. */
typedef struct mllm_pool mllm_pool;

typedef struct mllm_session_options {
  uint32_t threads;    /* 0: one per core */
  uint32_t max_tokens; /* of every KV cache; 0: as compiled; more than compiled is refused */
  mllm_pool *pool;     /* gives the arena, and outlives the session; NULL: the system does */
} mllm_session_options;

/* Takes all memory: arena, cache pages, scratch. options may be NULL. On failure *session is NULL.
 * The model outlives its sessions. */
mllm_status mllm_session_create(const mllm_model *model, const mllm_session_options *options,
                                mllm_session **session, mllm_error *error);
void mllm_session_destroy(mllm_session *session);

const mllm_model *mllm_session_model(const mllm_session *session);
uint32_t mllm_session_threads(const mllm_session *session);
/* Everything that the session holds, in bytes. */
uint64_t mllm_session_bytes(const mllm_session *session);

/* Runs an entry. Inputs are bound by name, or by place where name is NULL; an input with a default
 * place in the arena may be left out and is then what an earlier entry wrote there. Outputs likewise;
 * an output that is not asked for lands in its default place, where it must have one.
 *
 * An entry whose dims have buckets is run by the smallest graph that the inputs fit: they are padded,
 * and the outputs cut to what is real, in memory that the session holds. It takes all its inputs,
 * and its outputs need memory. The graphs can be run too, under their own names. */
mllm_status mllm_run(mllm_session *session, uint32_t entry, const mllm_tensor *inputs,
                     size_t n_inputs, mllm_tensor *outputs, size_t n_outputs, mllm_error *error);

/* As mllm_run, but only fills in dtype, rank, dims and bytes of the outputs (matched by name or
 * place), so that the caller knows how much to provide. */
mllm_status mllm_run_shapes(mllm_session *session, uint32_t entry, const mllm_tensor *inputs,
                            size_t n_inputs, mllm_tensor *outputs, size_t n_outputs,
                            mllm_error *error);

/* Which of two conversations goes first, and how often: one of priority 0 gets two turns for each of
 * one of priority 1, and four for each of one of priority 2. Room is made the other way round. */
typedef enum mllm_priority {
  MLLM_PRIORITY_HIGH = 0,
  MLLM_PRIORITY_NORMAL = 1,
  MLLM_PRIORITY_LOW = 2
} mllm_priority;

/* ---- KV cache ---------------------------------------------------------------------------------- */

typedef enum mllm_kv_kind { MLLM_KV_KEY = 0, MLLM_KV_VALUE = 1 } mllm_kv_kind;

/* Tokens held, and tokens that fit. */
uint32_t mllm_session_cache_length(const mllm_session *session, uint32_t cache);
uint32_t mllm_session_cache_capacity(const mllm_session *session, uint32_t cache);
/* Rewinds to length tokens, 0 forgets them all. Growing is allowed only over tokens written with
 * mllm_session_cache_write. */
mllm_status mllm_session_cache_set_length(mllm_session *session, uint32_t cache, uint32_t length,
                                          mllm_error *error);
/* Forgets so many whole pages behind the first: what stands behind them moves up, its keys are turned to
 * their new positions, and the length falls. A model whose keys no rotary embedding turns is refused. */
mllm_status mllm_session_cache_slide(mllm_session *session, uint32_t cache, uint32_t pages,
                                     mllm_error *error);
/* data is f32 [kv_heads, tokens, head_dim]: tokens 0.. of one layer and kind. write does not change
 * the length. */
mllm_status mllm_session_cache_write(mllm_session *session, uint32_t cache, uint32_t layer,
                                     mllm_kv_kind kind, const float *data, uint32_t tokens,
                                     mllm_error *error);
mllm_status mllm_session_cache_read(const mllm_session *session, uint32_t cache, uint32_t layer,
                                    mllm_kv_kind kind, float *data, uint32_t tokens,
                                    mllm_error *error);

/* ---- Bundle: a verified .mllm_bundle, mapped ------------------------------------------------------ */

typedef struct mllm_bundle mllm_bundle;

/* An Ed25519 public key. */
typedef struct mllm_key { uint8_t bytes[32]; } mllm_key;

enum {
  MLLM_ALLOW_UNSIGNED = 1,   /* no signature, or an unknown signer, is accepted */
  MLLM_ALREADY_VERIFIED = 2, /* the caller has: neither signature nor digests are checked */
};

typedef struct mllm_bundle_options {
  const mllm_key *trusted; /* whose bundles are believed */
  size_t n_trusted;
  uint32_t flags;   /* MLLM_ALLOW_UNSIGNED | MLLM_ALREADY_VERIFIED */
  uint32_t threads; /* for the digests; 0: one per core */
} mllm_bundle_options;

/* Maps a bundle and proves that every byte of it is what a trusted key signed. options may be NULL:
 * then nobody is trusted. On failure *bundle is NULL and the error names the member or region. */
mllm_status mllm_bundle_open(const char *path, const mllm_bundle_options *options,
                             mllm_bundle **bundle, mllm_error *error);
void mllm_bundle_close(mllm_bundle *bundle);
/* A member's bytes, in the mapping; NULL where there is none. */
const void *mllm_bundle_member(const mllm_bundle *bundle, const char *name, size_t *bytes);
/* Creates the model of target "c" over the mapped weights; the bundle outlives it. */
mllm_status mllm_bundle_model(const mllm_bundle *bundle, const mllm_model_options *options,
                              mllm_model **model, mllm_error *error);

/* Reads a trust file: a public key of 64 hexadecimal digits a line. path NULL: the user's own,
 * $XDG_CONFIG_HOME/mllm-compiler/trust or ~/.config/mllm-compiler/trust, which may be absent. At
 * most capacity keys are stored, *count says how many there are. */
mllm_status mllm_trust_read(const char *path, mllm_key *keys, size_t capacity, size_t *count,
                            mllm_error *error);

/* ---- Generation: text, pixels and sound in, tokens out -------------------------------------------- */

typedef struct mllm_generator mllm_generator;

/* Takes what generation needs beside the session: buffers, tokenizer, settings, and past tensors where
 * an entry with buckets takes those in the place of a cache. All three outlive the generator; the
 * session serves nothing else while it generates. */
mllm_status mllm_generator_create(const mllm_bundle *bundle, const mllm_model *model,
                                  mllm_session *session, mllm_generator **generator,
                                  mllm_error *error);
void mllm_generator_destroy(mllm_generator *generator);

/* What goes in; unused parts are NULL. What is pointed to stays until the prompt is read. */
typedef struct mllm_prompt {
  const char *text;      /* UTF-8; NULL: the bundle's own prompt, else "" */
  const char *system;    /* NULL: the template's own */
  const uint8_t *rgb;    /* an image: [height, width, 3] */
  uint32_t width;
  uint32_t height;
  const float *samples;  /* sound: mono, -1..1 */
  size_t n_samples;
  uint32_t rate;         /* samples per second */
  const mllm_frame *frame; /* an image in the place of rgb */
} mllm_prompt;

typedef struct mllm_generate_options {
  uint32_t max_new_tokens; /* 0: as the bundle says, else 256 */
  double temperature;      /* 0: the most probable token, always */
  double top_p;            /* 0: all tokens, as 1 */
  uint64_t seed;
  uint32_t drafts; /* tokens that are guessed and verified in one run, at most 16; 0: none */
  /* what guesses them: a generator of its own session, with the same tokenizer; NULL: the
   * conversation, whose tokens may come again */
  mllm_generator *draft;
  /* tokens that the cache keeps at most: at so many, half of the pages behind the first are forgotten,
   * and the answer goes on. At least 3 pages, at most as many as fit. 0: it ends when the cache is full */
  uint32_t window;
} mllm_generate_options;

#define MLLM_NO_TOKEN 0xFFFFFFFFu

/* A token and the whole characters that it completes; text is valid until the next call. */
typedef struct mllm_piece {
  uint32_t token; /* MLLM_NO_TOKEN: this was all; text holds what was still incomplete */
  const char *text;
  size_t bytes;
} mllm_piece;

/* Reads the prompt (this allocates), then gives a token a call (this does not). options may be NULL. */
mllm_status mllm_generate_start(mllm_generator *generator, const mllm_prompt *prompt,
                                const mllm_generate_options *options, mllm_error *error);
mllm_status mllm_generate_next(mllm_generator *generator, mllm_piece *piece, mllm_error *error);

/* Both in one: calls back for every token, and a last time with MLLM_NO_TOKEN. The callback stops
 * it early by returning something else than 0. */
typedef int (*mllm_on_piece)(void *context, const mllm_piece *piece);
mllm_status mllm_generate(mllm_generator *generator, const mllm_prompt *prompt,
                          const mllm_generate_options *options, mllm_on_piece on_piece,
                          void *context, mllm_error *error);

typedef enum mllm_finish {
  MLLM_FINISH_NONE = 0,   /* not yet */
  MLLM_FINISH_STOP = 1,   /* a stop token */
  MLLM_FINISH_LENGTH = 2, /* max_new_tokens */
  MLLM_FINISH_FULL = 3    /* the KV cache is full */
} mllm_finish;

typedef struct mllm_statistics {
  uint32_t prompt_tokens; /* those of the image included */
  uint32_t new_tokens;
  uint32_t finish;       /* mllm_finish */
  double encode_seconds; /* pixels or sound, encoder, projector */
  double prompt_seconds;
  double decode_seconds; /* of new_tokens - 1 steps: the first token comes from the prompt */
  uint64_t session_bytes;
  uint64_t peak_bytes; /* the process's largest resident set so far */
  uint64_t copied_bytes; /* from what one entry gave to what another takes */
  uint32_t drafted;  /* tokens that were guessed */
  uint32_t accepted; /* and were right: so many steps were saved */
  uint32_t forgotten; /* tokens that left the window */
  uint32_t reused; /* of the prompt, which another conversation had read */
} mllm_statistics;

void mllm_generate_statistics(const mllm_generator *generator, mllm_statistics *statistics);

/* Text to ids and back. special: added tokens are recognised in the text, and ids that the tokenizer
 * puts around a text are added; without, text is only text. *count may exceed capacity. */
mllm_status mllm_tokenize(const mllm_generator *generator, const char *text, size_t bytes,
                          int special, uint32_t *ids, size_t capacity, size_t *count,
                          mllm_error *error);
/* special: special tokens are spelled out. text has no NUL at its end; *bytes may exceed capacity. */
mllm_status mllm_detokenize(const mllm_generator *generator, const uint32_t *ids, size_t count,
                            int special, char *text, size_t capacity, size_t *bytes,
                            mllm_error *error);

/* ---- Files that need no other library -------------------------------------------------------------- */

/* Maps a P6 PPM or a uint8 npy of [height, width, 3] and points the prompt to its pixels; or a 16-bit
 * PCM WAV of one or two channels, whose mean is copied. The file outlives the prompt. */
typedef struct mllm_media mllm_media;
mllm_status mllm_media_open_image(const char *path, mllm_prompt *prompt, mllm_media **media,
                                  mllm_error *error);
mllm_status mllm_media_open_audio(const char *path, mllm_prompt *prompt, mllm_media **media,
                                  mllm_error *error);
void mllm_media_close(mllm_media *media);

/* What a user can do about an error code, as a clause; "" where nothing is known. */
const char *mllm_remedy(const char *code);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MLLM_H */

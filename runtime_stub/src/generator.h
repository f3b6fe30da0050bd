/* The parts of a generator. */
#ifndef MLLM_GENERATOR_H
#define MLLM_GENERATOR_H

#include "config.h"
#include "feed.h"
#include "mllm_kv.h"
#include "mllm_tokenizer.h"
#include "sampling.h"
#include "speculate.h"

/* In the row of prompt ids: this bit marks row (id & ~bit) of the image's features. */
#define MLLM_FEATURE_BIT 0x80000000u

struct mllm_generator {
  const mllm_model *model;
  mllm_session *session;
  const mllm_generator *lender; /* whose parts it shares; NULL: all are its own */
  bool takes_turns;             /* others use the session, each with its cache */
  mllm_cache *cache;            /* of this conversation; NULL: the session's */
  mllm_config config;
  mllm_tokenizer tokenizer;

  mllm_feed prompt; /* takes the prompt: role prefill, decoder or language-model */
  mllm_feed decode; /* takes one token: role decode, decoder-with-past, or the same again */
  mllm_feed_memory memory;
  uint32_t capacity; /* tokens that fit the cache */
  bool from_sound;   /* the prompt entry reads an encoder's sound */

  uint32_t embed;        /* entry: ids to embeddings; MLLM_NO_TOKEN: none */
  const char *embed_ids; /* its input */
  uint32_t encoder;      /* entry; MLLM_NO_TOKEN: none */
  uint32_t projector;    /* likewise */
  float *media;          /* pixels or log-mel features, the encoder's input */
  float *samples;        /* one window of sound */
  mllm_tensor source;    /* what the last of them takes, where it is not in the arena */
  mllm_tensor features;  /* what that one gives, and stands for the image: [1, rows, width], in the
                            embeddings of the prompt; no rows where an entry reads it in its place */
  mllm_tensor encoded;   /* the encoder's output for the projector, where it has no shared place */
  size_t encoded_bytes;

  uint32_t *ids; /* [capacity + 1] the conversation: the prompt, then what was decided */
  uint32_t n_ids;
  uint32_t n_read;   /* of the prompt */
  bool is_embedded;  /* all of the prompt */
  bool reuses;       /* what others in the pool of its cache have read */
  uint8_t identity[MLLM_KV_IDENTITY_BYTES]; /* of the prompt's image; zeros: none */
  uint32_t image_at; /* where the features stand among them; MLLM_NO_TOKEN: nowhere */
  uint8_t *suppressed; /* [vocabulary] */
  mllm_sampler sampler;
  mllm_utf8_stream utf8;
  size_t longest_token; /* bytes */
  char *text;           /* a token's characters */

  bool is_ready;       /* a prompt was read */
  const float *logits; /* of the last run, until the next one */
  uint32_t decided[MLLM_MOST_DRAFTS + 1]; /* tokens to give */
  uint32_t n_decided;
  uint32_t n_given;
  uint32_t pending; /* the last of them, which the next step feeds */
  mllm_speculation speculation;
  uint32_t length; /* tokens in the cache */
  uint32_t window; /* tokens at which it forgets some; 0: never */
  uint32_t limit;   /* max_new_tokens */
  mllm_statistics statistics;
};

/* Another conversation over the same session: it has its own ids, embeddings and text, and is lent
 * the rest. Give it a cache before it starts; it owns it. The lender outlives it. */
mllm_status mllm_generator_share(mllm_generator *lender, mllm_generator **generator,
                                 mllm_error *error);

/* Starts as mllm_generate_start does, but looks at no prompt yet. */
mllm_status mllm_generate_open(mllm_generator *generator, const mllm_generate_options *options,
                               mllm_error *error);

/* What the prompt is read from: features of its media, ids. */
mllm_status mllm_generate_prepare(mllm_generator *generator, const mllm_prompt *prompt,
                                  mllm_error *error);

/* Embeds the whole prompt, so that reading it does not. */
mllm_status mllm_embed_prompt(mllm_generator *generator, mllm_error *error);

/* Reads a chunk of the prompt; behind the last it decides the first token, and is_ready. */
mllm_status mllm_generate_read(mllm_generator *generator, mllm_error *error);

/* Lets the session use this conversation's cache. */
mllm_status mllm_take_turn(mllm_generator *generator, mllm_error *error);

/* The options of an answer, with the bundle's own where they say nothing. */
void mllm_set_options(mllm_generator *generator, const mllm_generate_options *options);

/* Fills ids, n_ids from the prompt; `has_image`: rows of features stand among them. */
mllm_status mllm_prompt_ids(mllm_generator *generator, const mllm_prompt *prompt, bool has_image,
                            mllm_error *error);

/* Runs encoder and projector on the prompt's image or sound; the last of them, whose features are
 * rows of the prompt, is only asked for their shape. */
mllm_status mllm_encode_media(mllm_generator *generator, const mllm_prompt *prompt,
                              mllm_error *error);

/* Sets the features' dims to the largest that there can be, and runs nothing. */
mllm_status mllm_bound_features(mllm_generator *generator, mllm_error *error);

/* Runs that one: it writes the features where the prompt has them. */
mllm_status mllm_place_features(mllm_generator *generator, mllm_error *error);

/* Takes memory for the encoder and projector. */
mllm_status mllm_media_memory(mllm_generator *generator, mllm_error *error);

/* Notes what the prompt depends on beside its ids, or that it is too short to reuse anything. */
void mllm_reuse_identify(mllm_generator *generator, const mllm_prompt *prompt);
/* Takes the chunks of the prompt that others have read already; at least one stays to be read. */
mllm_status mllm_reuse_begin(mllm_generator *generator, mllm_error *error);
/* Lets others have the chunks of the prompt that were read, before old pages fall to fewer bits. */
void mllm_reuse_offer(mllm_generator *generator);

/* Whether the model can keep the window that the options ask for. */
mllm_status mllm_window_open(mllm_generator *generator, const mllm_generate_options *options,
                             mllm_error *error);
/* Forgets tokens where the window is full. */
mllm_status mllm_window_move(mllm_generator *generator, mllm_error *error);

/* Decides the next token. */
void mllm_decide(mllm_generator *generator, uint32_t token);

/* Feeds the token that is pending and decides the next. */
mllm_status mllm_decode_one(mllm_generator *generator, mllm_error *error);

/* Feeds ids[0 .. count): sets logits, advances length. They are embedded from row `row` of the
 * embeddings on. */
mllm_status mllm_feed_ids(mllm_generator *generator, const mllm_feed *feed, const uint32_t *ids,
                          uint32_t count, uint32_t row, mllm_error *error);

#endif

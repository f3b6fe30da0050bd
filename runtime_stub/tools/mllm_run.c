/* mllm-run: runs a bundle without Python. Prints the answer as it comes; errors are one line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocations.h"
#include "mllm.h"

enum { EXIT_DONE = 0, EXIT_INPUT = 1, EXIT_USAGE = 2, EXIT_FAULT = 70 };
enum { MAX_KEYS = 256 };

static const char usage[] =
    "usage: mllm-run BUNDLE [--prompt TEXT] [--system TEXT] [--image FILE.ppm|FILE.npy]\n"
    "                [--audio FILE.wav] [--max-new-tokens N] [--temperature T] [--top-p P]\n"
    "                [--seed S] [--speculate lookup|DRAFT] [--drafts N] [--window N]\n"
    "                [--threads N] [--trust FILE] [--allow-unsigned] [--json]\n"
    "                [--forbid-allocations]\n"
    "       mllm-run --help | --version\n";

typedef struct arguments {
  const char *bundle;
  const char *prompt;
  const char *system;
  const char *image;
  const char *audio;
  const char *trust;
  const char *max_new_tokens;
  const char *temperature;
  const char *top_p;
  const char *seed;
  const char *speculate;
  const char *drafts;
  const char *window;
  const char *threads;
  int allow_unsigned;
  int json;
  int forbid;
} arguments;

/* A bundle that generates. */
typedef struct talker {
  mllm_bundle *bundle;
  mllm_model *model;
  mllm_session *session;
  mllm_generator *generator;
} talker;

/* All that has to be given back. */
typedef struct run {
  talker main;
  talker draft;
  mllm_media *image;
  mllm_media *audio;
  mllm_prompt prompt;
  mllm_generate_options options;
  int json;
  int failed_output;
  char *text; /* of the answer, kept for --json */
  size_t text_bytes;
} run;

static int misuse(const char *what, const char *argument) {
  (void)fprintf(stderr, "mllm-run: error: %s%s [MLC-U001] (mllm-run --help)\n", what, argument);
  return EXIT_USAGE;
}

static int fault(const mllm_error *error, const char *fallback) {
  const char *location = error->location[0] != '\0' ? error->location : fallback;
  const char *remedy = mllm_remedy(error->code);
  (void)fprintf(stderr, "%s: error: %s [%s]", location, error->message, error->code);
  if (remedy[0] != '\0') (void)fprintf(stderr, " (%s)", remedy);
  (void)fputc('\n', stderr);
  return error->status == MLLM_INTERNAL ? EXIT_FAULT : EXIT_INPUT;
}

/* The place of an option's value, or NULL where it is unknown. */
static const char **value_of(arguments *a, const char *option) {
  const struct {
    const char *name;
    const char **value;
  } known[] = {
      {"--prompt", &a->prompt},
      {"--system", &a->system},
      {"--image", &a->image},
      {"--audio", &a->audio},
      {"--trust", &a->trust},
      {"--max-new-tokens", &a->max_new_tokens},
      {"--temperature", &a->temperature},
      {"--top-p", &a->top_p},
      {"--seed", &a->seed},
      {"--speculate", &a->speculate},
      {"--drafts", &a->drafts},
      {"--window", &a->window},
      {"--threads", &a->threads},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(known[i].name, option) == 0) return known[i].value;
  return NULL;
}

/* 0: go on; else the exit status. */
static int read_arguments(int argc, char **argv, arguments *a) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--allow-unsigned") == 0) {
      a->allow_unsigned = 1;
    } else if (strcmp(argv[i], "--json") == 0) {
      a->json = 1;
    } else if (strcmp(argv[i], "--forbid-allocations") == 0) {
      a->forbid = 1;
    } else if (strncmp(argv[i], "--", 2) == 0) {
      const char **value = value_of(a, argv[i]);
      if (value == NULL) return misuse("no such option: ", argv[i]);
      if (i + 1 >= argc) return misuse("a value is missing behind ", argv[i]);
      *value = argv[++i];
    } else if (a->bundle == NULL) {
      a->bundle = argv[i];
    } else {
      return misuse("more than one bundle: ", argv[i]);
    }
  }
  return a->bundle == NULL ? misuse("no bundle is given", "") : 0;
}

static int number(const char *text, double low, double high, double *value) {
  char *end;
  if (text == NULL) return 1;
  errno = 0;
  *value = strtod(text, &end);
  return end != text && *end == '\0' && errno == 0 && *value >= low && *value <= high;
}

static int whole(const char *text, unsigned long long high, unsigned long long *value) {
  char *end;
  if (text == NULL) return 1;
  errno = 0;
  *value = strtoull(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *value <= high;
}

static int read_options(const arguments *a, mllm_generate_options *options, uint32_t *threads) {
  unsigned long long tokens = 0, seed = 0, workers = 0, drafts = 4, window = 0;
  if (!whole(a->max_new_tokens, 1u << 30, &tokens))
    return misuse("no number of tokens: ", a->max_new_tokens);
  if (!whole(a->seed, UINT64_MAX, &seed)) return misuse("no seed: ", a->seed);
  if (!whole(a->threads, 64, &workers)) return misuse("no number of threads: ", a->threads);
  if (!whole(a->drafts, 16, &drafts)) return misuse("no number of drafts: ", a->drafts);
  if (!whole(a->window, UINT32_MAX, &window)) return misuse("no number of tokens: ", a->window);
  if (!number(a->temperature, 0.0, 100.0, &options->temperature))
    return misuse("no temperature: ", a->temperature);
  if (!number(a->top_p, 0.0, 1.0, &options->top_p)) return misuse("no probability: ", a->top_p);
  options->max_new_tokens = (uint32_t)tokens;
  options->seed = seed;
  options->drafts = a->speculate == NULL ? 0 : (uint32_t)drafts;
  options->window = (uint32_t)window;
  *threads = (uint32_t)workers;
  return 0;
}

static mllm_status open_talker(talker *t, const char *path, const mllm_bundle_options *trust,
                               mllm_error *error) {
  const mllm_session_options session = {.threads = trust->threads};
  mllm_status status = mllm_bundle_open(path, trust, &t->bundle, error);
  if (status == MLLM_OK) status = mllm_bundle_model(t->bundle, NULL, &t->model, error);
  if (status == MLLM_OK) status = mllm_session_create(t->model, &session, &t->session, error);
  if (status == MLLM_OK)
    status = mllm_generator_create(t->bundle, t->model, t->session, &t->generator, error);
  return status;
}

static mllm_status open_all(run *r, const arguments *a, uint32_t threads, mllm_error *error) {
  static mllm_key keys[MAX_KEYS];
  size_t count = 0;
  mllm_status status = mllm_trust_read(a->trust, keys, MAX_KEYS, &count, error);
  if (status != MLLM_OK) return status;
  const mllm_bundle_options trust = {.trusted = keys,
                                     .n_trusted = count < MAX_KEYS ? count : MAX_KEYS,
                                     .flags = a->allow_unsigned ? MLLM_ALLOW_UNSIGNED : 0,
                                     .threads = threads};
  status = open_talker(&r->main, a->bundle, &trust, error);
  if (status == MLLM_OK && a->speculate != NULL && strcmp(a->speculate, "lookup") != 0) {
    status = open_talker(&r->draft, a->speculate, &trust, error);
    r->options.draft = r->draft.generator;
  }
  if (status == MLLM_OK && a->image != NULL)
    status = mllm_media_open_image(a->image, &r->prompt, &r->image, error);
  if (status == MLLM_OK && a->audio != NULL)
    status = mllm_media_open_audio(a->audio, &r->prompt, &r->audio, error);
  return status;
}

static void close_talker(talker *t) {
  mllm_generator_destroy(t->generator);
  mllm_session_destroy(t->session);
  mllm_model_destroy(t->model);
  mllm_bundle_close(t->bundle);
}

static void close_all(run *r) {
  free(r->text);
  mllm_media_close(r->audio);
  mllm_media_close(r->image);
  close_talker(&r->main);
  close_talker(&r->draft);
}

/* Text inside a JSON string. */
static void print_escaped(const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    const unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\')
      (void)printf("\\%c", c);
    else if (c < 0x20)
      (void)printf("\\u%04x", c);
    else
      (void)putchar(c);
  }
}

/* Keeps a piece for the one object of --json; 0: no memory. */
static int keep(run *r, const mllm_piece *piece) {
  char *grown = realloc(r->text, r->text_bytes + piece->bytes + 1);
  if (grown == NULL) return 0;
  memcpy(grown + r->text_bytes, piece->text, piece->bytes);
  r->text = grown;
  r->text_bytes += piece->bytes;
  return 1;
}

/* 0: go on. */
static int on_piece(run *r, const mllm_piece *piece) {
  if (r->json) {
    r->failed_output = !keep(r, piece);
    return r->failed_output;
  }
  (void)fwrite(piece->text, 1, piece->bytes, stdout);
  (void)fflush(stdout);
  r->failed_output = ferror(stdout);
  return r->failed_output;
}

static double rate(double tokens, double seconds) { return seconds > 0.0 ? tokens / seconds : 0.0; }

static void report(const run *r) {
  static const char *const reasons[] = {"none", "stop", "length", "full"};
  mllm_statistics s;
  mllm_generate_statistics(r->main.generator, &s);
  const double prompt = rate(s.prompt_tokens, s.prompt_seconds);
  const double decode = rate(s.new_tokens > 0 ? s.new_tokens - 1 : 0, s.decode_seconds);
  if (r->json) {
    (void)fputs("{\"text\": \"", stdout);
    print_escaped(r->text, r->text_bytes);
    (void)printf(
        "\", \"prompt_tokens\": %u, \"new_tokens\": %u, \"finish\": \"%s\", \"encode_seconds\": "
        "%.6f, "
        "\"prompt_tokens_per_second\": %.3f, \"decode_tokens_per_second\": %.3f, "
        "\"session_bytes\": %llu, \"peak_bytes\": %llu, \"copied_bytes\": %llu, "
        "\"drafted\": %u, \"accepted\": %u, \"forgotten\": %u}\n",
        s.prompt_tokens, s.new_tokens, reasons[s.finish & 3], s.encode_seconds, prompt, decode,
        (unsigned long long)s.session_bytes, (unsigned long long)s.peak_bytes,
        (unsigned long long)s.copied_bytes, s.drafted, s.accepted, s.forgotten);
    return;
  }
  (void)putchar('\n');
  (void)fflush(stdout); /* where both go to one place, the figures stand below the text */
  (void)fprintf(stderr, "%u prompt tokens (%.1f/s), %u new tokens (%.1f/s), peak memory %.1f MB\n",
                s.prompt_tokens, prompt, s.new_tokens, decode, (double)s.peak_bytes / 1e6);
}

static int answer(run *r, const arguments *a) {
  mllm_error error = {0};
  r->prompt.text = a->prompt;
  r->prompt.system = a->system;
  mllm_status status = mllm_generate_start(r->main.generator, &r->prompt, &r->options, &error);
  if (status != MLLM_OK) return fault(&error, a->bundle);
  mllm_piece piece = {0};
  while (piece.token != MLLM_NO_TOKEN) {
    mllm_allocations_forbid(a->forbid);
    status = mllm_generate_next(r->main.generator, &piece, &error);
    mllm_allocations_forbid(0);
    if (status != MLLM_OK) return fault(&error, a->bundle);
    if (on_piece(r, &piece) != 0) break;
  }
  if (!r->failed_output) report(r);
  if (fflush(stdout) == 0 && !r->failed_output) return EXIT_DONE;
  (void)fprintf(stderr, "stdout: error: %s [MLC-U005]\n", strerror(errno));
  return EXIT_INPUT;
}

int main(int argc, char **argv) {
  arguments a = {0};
  if (argc == 2 && strcmp(argv[1], "--help") == 0) {
    (void)fputs(usage, stdout);
    return EXIT_DONE;
  }
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    (void)printf("mllm-run, version %s\n", mllm_version());
    return EXIT_DONE;
  }
  run r = {0};
  uint32_t threads = 0;
  int status = read_arguments(argc, argv, &a);
  if (status == 0) status = read_options(&a, &r.options, &threads);
  if (status == 0 && a.forbid && !mllm_allocations_are_seen())
    status = misuse("this build sees no allocations: ", "--forbid-allocations");
  if (status != 0) return status;
  r.json = a.json;
  mllm_error error = {0};
  status = open_all(&r, &a, threads, &error) == MLLM_OK ? answer(&r, &a) : fault(&error, a.bundle);
  close_all(&r);
  return status;
}

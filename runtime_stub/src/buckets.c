/* buckets.c - reading and checking the table of an entry that padded graphs serve. */
#include "buckets.h"

#include <string.h>

#include "dims.h"

enum { SYMBOLS = 64 }; /* keeps a hostile file from costing more than linear time */

static const mllm_tensor_record *port(const mllm_program *program, uint32_t first, uint32_t i) {
  return &program->tensors[program->arg_ids[first + i]];
}

bool mllm_buckets_read(const mllm_program *program, const mllm_entry_record *entry,
                       mllm_buckets *buckets) {
  const uint64_t params = program->counts[MLLM_SECTION_PARAMS];
  const uint64_t at = (uint64_t)entry->buckets - 1;
  if (at + 2 > params) return false;
  const int64_t symbols = program->params[at], variants = program->params[at + 1];
  if (symbols < 1 || symbols > SYMBOLS || variants < 1 || variants > UINT32_MAX) return false;
  if (at + 2 + (uint64_t)symbols * (2 + (uint64_t)variants) > params) return false;
  *buckets = (mllm_buckets){.n_symbols = (uint32_t)symbols,
                            .n_variants = (uint32_t)variants,
                            .symbols = program->params + at + 2,
                            .sizes = program->params + at + 2 + 2 * symbols};
  return true;
}

/* Symbols of the program, sizes whose product is a number. */
static bool is_table(const mllm_program *program, const mllm_buckets *b) {
  for (uint32_t s = 0; s < b->n_symbols; s++) {
    const int64_t symbol = b->symbols[2 * s], left = b->symbols[2 * s + 1];
    if (symbol < 0 || symbol >= program->counts[MLLM_SECTION_SYMBOLS]) return false;
    if (left != 0 && left != 1) return false;
  }
  for (uint32_t v = 0; v < b->n_variants; v++) {
    int64_t product = 1;
    for (uint32_t s = 0; s < b->n_symbols; s++) {
      const int64_t size = b->sizes[v * b->n_symbols + s];
      if (size < 0 || __builtin_mul_overflow(product, size, &product)) return false;
    }
  }
  return true;
}

/* A tensor of one shape that needs the bytes that it says; they are added to *total. */
static bool add_static(const mllm_program *program, const mllm_tensor_record *tensor,
                       uint64_t *total) {
  uint64_t bytes = mllm_dtype_bytes(tensor->dtype);
  for (uint32_t i = 0; i < tensor->rank; i++) {
    const int64_t dim = mllm_dims_constant(program, tensor->dims[i]);
    if (dim < 0 || __builtin_mul_overflow(bytes, (uint64_t)dim, &bytes)) return false;
  }
  if (bytes != tensor->max_bytes || bytes > SIZE_MAX / 4) return false;
  *total += mllm_padded_bytes(tensor);
  return *total <= SIZE_MAX / 4;
}

static bool same_port(const mllm_program *program, const mllm_tensor_record *real,
                      const mllm_tensor_record *padded) {
  return real->dtype == padded->dtype && real->rank == padded->rank &&
         real->offset == MLLM_NO_SLOT &&
         strcmp(mllm_program_string(program, real->name),
                mllm_program_string(program, padded->name)) == 0;
}

int64_t mllm_buckets_length_of(const mllm_program *program, const mllm_buckets *buckets,
                               const mllm_tensor_record *tensor) {
  const char *name = mllm_program_string(program, tensor->name);
  if (strncmp(name, MLLM_LENGTH_PREFIX, strlen(MLLM_LENGTH_PREFIX)) != 0) return -1;
  for (uint32_t s = 0; s < buckets->n_symbols; s++) {
    const mllm_symbol_record *symbol = &program->symbols[buckets->symbols[2 * s]];
    const char *known = mllm_program_string(program, symbol->name);
    if (strcmp(name + strlen(MLLM_LENGTH_PREFIX), known) == 0) return buckets->symbols[2 * s];
  }
  return -1;
}

static bool is_length(const mllm_program *program, const mllm_buckets *b,
                      const mllm_tensor_record *tensor) {
  return tensor->dtype == MLLM_I64 && tensor->rank == 1 &&
         mllm_dims_constant(program, tensor->dims[0]) == 1 &&
         mllm_buckets_length_of(program, b, tensor) >= 0;
}

/* A graph that takes what the entry takes, then lengths, and gives what the entry gives. */
static bool serves(mllm_program *program, const mllm_entry_record *entry,
                   const mllm_entry_record *graph, const mllm_buckets *b) {
  uint64_t bytes = 0;
  if (graph->buckets != 0 || graph->cache != -1 || graph->n_outputs != entry->n_outputs ||
      graph->n_inputs < entry->n_inputs || graph->n_inputs > entry->n_inputs + b->n_symbols) {
    return false;
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const mllm_tensor_record *tensor = port(program, graph->first_input, i);
    const bool fits = i < entry->n_inputs
                          ? same_port(program, port(program, entry->first_input, i), tensor)
                          : is_length(program, b, tensor);
    if (!fits || !add_static(program, tensor, &bytes)) return false;
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    const mllm_tensor_record *tensor = port(program, graph->first_output, i);
    if (!same_port(program, port(program, entry->first_output, i), tensor)) return false;
    if (!add_static(program, tensor, &bytes)) return false;
  }
  const uint32_t ports = graph->n_inputs + graph->n_outputs;
  if (ports > program->padded_ports) program->padded_ports = ports;
  if (bytes > program->padding_bytes) program->padding_bytes = bytes;
  return true;
}

bool mllm_buckets_check(mllm_program *program, uint32_t index) {
  mllm_buckets buckets;
  const mllm_entry_record *entry = &program->entries[index];
  if (entry->n_stages != 0 || entry->cache != -1) return false;
  if (!mllm_buckets_read(program, entry, &buckets)) return false;
  const uint32_t behind = program->counts[MLLM_SECTION_ENTRIES] - index - 1;
  if (buckets.n_variants > behind || !is_table(program, &buckets)) return false;
  for (uint32_t v = 0; v < buckets.n_variants; v++) {
    if (!serves(program, entry, entry + 1 + v, &buckets)) return false;
  }
  return true;
}

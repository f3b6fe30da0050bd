/* padding.c - an entry with buckets: the smallest graph that fits runs on padded inputs. */
#include "padding.h"

#include <inttypes.h>
#include <string.h>

#include "buckets.h"
#include "memory.h"
#include "session.h"
#include "status.h"

/* One run: the entry, and the graph that was chosen. */
typedef struct job {
  mllm_session *session;
  const mllm_program *program;
  const mllm_entry_record *entry;
  const mllm_entry_record *graph;
  mllm_buckets buckets;
  const int64_t *sizes; /* [n_symbols] of the graph */
  mllm_error *error;
} job;

bool mllm_padding_take(mllm_padding *padding, const mllm_program *program) {
  if (program->padded_ports == 0) return true;
  const size_t ports = program->padded_ports;
  const size_t symbols = program->counts[MLLM_SECTION_SYMBOLS];
  padding->memory = mllm_memory_take((size_t)program->padding_bytes, &padding->taken);
  padding->tensors = calloc(ports, sizeof *padding->tensors);
  padding->boxes = calloc(ports, sizeof *padding->boxes);
  padding->values = calloc(symbols, sizeof *padding->values);
  padding->bytes = program->padding_bytes + ports * sizeof *padding->tensors +
                   ports * sizeof *padding->boxes + symbols * sizeof *padding->values;
  return padding->memory != NULL && padding->tensors != NULL && padding->boxes != NULL &&
         padding->values != NULL;
}

void mllm_padding_free(mllm_padding *padding) {
  free(padding->taken);
  free(padding->tensors);
  free(padding->boxes);
  free(padding->values);
  *padding = (mllm_padding){0};
}

/* Tensor id of an entry's input i, behind them of its outputs. */
static uint32_t port(const job *j, const mllm_entry_record *entry, uint32_t i) {
  const uint32_t *ids = j->program->arg_ids;
  if (i < entry->n_inputs) return ids[entry->first_input + i];
  return ids[entry->first_output + i - entry->n_inputs];
}

/* The place among the graph's inputs and outputs of what is number i among the entry's. */
static uint32_t padded(const job *j, uint32_t i) {
  return i < j->entry->n_inputs ? i : i + j->graph->n_inputs - j->entry->n_inputs;
}

static int64_t extent(const job *j, uint32_t i, uint32_t axis) {
  const uint32_t id = port(j, j->graph, padded(j, i));
  return mllm_dims_constant(j->program, j->program->tensors[id].dims[axis]);
}

/* The first of the smallest graphs whose sizes are not below the values; false: there is none. */
static bool choose(job *j) {
  int64_t smallest = INT64_MAX;
  j->sizes = NULL;
  for (uint32_t v = 0; v < j->buckets.n_variants; v++) {
    const int64_t *sizes = j->buckets.sizes + (size_t)v * j->buckets.n_symbols;
    int64_t product = 1;
    bool fits = true;
    for (uint32_t s = 0; s < j->buckets.n_symbols; s++) {
      fits = fits && j->session->padding.values[j->buckets.symbols[2 * s]] <= sizes[s];
      product *= sizes[s];
    }
    if (!fits || (j->sizes != NULL && product >= smallest)) continue;
    smallest = product;
    j->sizes = sizes;
    j->graph = j->entry + 1 + v;
  }
  return j->sizes != NULL;
}

/* Evaluates the dims of every tensor of the entry: first the counts of real elements, then, where
 * symbols with padding before them have the graph's sizes, where they end. */
static mllm_status measure(const job *j, bool ends) {
  for (uint32_t i = 0; i < j->entry->n_inputs + j->entry->n_outputs; i++) {
    int64_t shape[MLLM_MAX_RANK];
    uint64_t bytes = 0;
    mllm_box *box = &j->session->padding.boxes[i];
    const mllm_tensor_record *tensor = &j->program->tensors[port(j, j->entry, i)];
    const mllm_status status = mllm_dims_shape(&j->session->dims, tensor, shape, &bytes, j->error);
    if (status != MLLM_OK) return status;
    for (uint32_t axis = 0; axis < tensor->rank; axis++) {
      if (!ends) {
        box->count[axis] = shape[axis];
        continue;
      }
      box->start[axis] = shape[axis] - box->count[axis];
      if (box->start[axis] < 0 || shape[axis] > extent(j, i, axis)) {
        return mllm_fail(j->error, MLLM_INVALID_PROGRAM, MLLM_CODE_PROGRAM,
                         "malformed program: '%s' does not fit the graph of its bucket",
                         mllm_program_string(j->program, tensor->name));
      }
    }
  }
  return MLLM_OK;
}

/* Counts, the graph, and where the real elements stand in it. */
static mllm_status fit(job *j) {
  mllm_dims *dims = &j->session->dims;
  int64_t *values = j->session->padding.values;
  const mllm_status status = measure(j, false);
  if (status != MLLM_OK) return status;
  memcpy(values, dims->symbols, j->program->counts[MLLM_SECTION_SYMBOLS] * sizeof *values);
  if (!choose(j)) {
    return mllm_fail(j->error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                     "the inputs are larger than every bucket");
  }
  mllm_dims_reset(dims);
  for (uint32_t s = 0; s < j->buckets.n_symbols; s++) {
    const int64_t symbol = j->buckets.symbols[2 * s], left = j->buckets.symbols[2 * s + 1];
    if (values[symbol] < 0) {
      return mllm_fail(j->error, MLLM_INVALID_PROGRAM, MLLM_CODE_PROGRAM,
                       "malformed program: no input gives the dimension of a bucket");
    }
    dims->symbols[symbol] = left ? j->sizes[s] : values[symbol];
  }
  return measure(j, true);
}

/* Whether nothing of the tensor is padding. */
static bool is_whole(const job *j, uint32_t i, uint32_t rank) {
  const mllm_box *box = &j->session->padding.boxes[i];
  for (uint32_t axis = 0; axis < rank; axis++) {
    if (box->count[axis] != extent(j, i, axis)) return false;
  }
  return true;
}

/* Copies the real elements between dense memory of their own and their place in a padded tensor;
 * gives their bytes. */
static uint64_t copy_box(const mllm_box *box, const mllm_tensor *tensor, unsigned char *real,
                         bool cut) {
  size_t run = mllm_dtype_bytes(tensor->dtype), rows = 1;
  uint32_t outer = tensor->rank;
  bool whole = true;
  for (; outer > 0 && whole; outer--) {
    run *= (size_t)box->count[outer - 1];
    whole = box->count[outer - 1] == tensor->dims[outer - 1];
  }
  for (uint32_t axis = 0; axis < outer; axis++) rows *= (size_t)box->count[axis];
  if (run == 0) return 0;
  for (size_t row = 0; row < rows; row++, real += run) {
    size_t rest = row, at = 0, stride = mllm_dtype_bytes(tensor->dtype);
    for (uint32_t axis = tensor->rank; axis-- > 0;) {
      size_t place = (size_t)box->start[axis];
      if (axis < outer) {
        place += rest % (size_t)box->count[axis];
        rest /= (size_t)box->count[axis];
      }
      at += place * stride;
      stride *= (size_t)tensor->dims[axis];
    }
    unsigned char *there = (unsigned char *)tensor->data + at;
    memcpy(cut ? real : there, cut ? there : real, run);
  }
  return rows * run;
}

/* Describes the graph's tensors; all of them lie one behind the other in the padding. */
static void describe(const job *j) {
  mllm_padding *padding = &j->session->padding;
  unsigned char *at = padding->memory;
  for (uint32_t i = 0; i < j->graph->n_inputs + j->graph->n_outputs; i++) {
    const mllm_tensor_record *record = &j->program->tensors[port(j, j->graph, i)];
    mllm_tensor *tensor = &padding->tensors[i];
    *tensor = (mllm_tensor){.data = at,
                            .bytes = (size_t)record->max_bytes,
                            .dtype = record->dtype,
                            .rank = record->rank};
    for (uint32_t axis = 0; axis < record->rank; axis++) {
      tensor->dims[axis] = mllm_dims_constant(j->program, record->dims[axis]);
    }
    at += mllm_padded_bytes(record);
  }
}

/* Inputs are copied between zeros; what fits exactly is used where it lies. */
static void pad(const job *j) {
  mllm_padding *padding = &j->session->padding;
  for (uint32_t i = 0; i < j->entry->n_inputs + j->entry->n_outputs; i++) {
    mllm_tensor *tensor = &padding->tensors[padded(j, i)];
    void *bound = j->session->bound[port(j, j->entry, i)];
    if (bound == NULL) continue;
    if (is_whole(j, i, tensor->rank)) {
      tensor->data = bound;
    } else if (i < j->entry->n_inputs) {
      memset(tensor->data, 0, tensor->bytes);
      j->session->counters.copied_bytes += copy_box(&padding->boxes[i], tensor, bound, false);
    }
  }
  for (uint32_t i = j->entry->n_inputs; i < j->graph->n_inputs; i++) {
    const mllm_tensor_record *record = &j->program->tensors[port(j, j->graph, i)];
    const int64_t symbol = mllm_buckets_length_of(j->program, &j->buckets, record);
    memcpy(padding->tensors[i].data, &padding->values[symbol], sizeof(int64_t));
  }
}

static void cut(const job *j) {
  const mllm_padding *padding = &j->session->padding;
  for (uint32_t i = j->entry->n_inputs; i < j->entry->n_inputs + j->entry->n_outputs; i++) {
    const mllm_tensor *tensor = &padding->tensors[padded(j, i)];
    unsigned char *bound = j->session->bound[port(j, j->entry, i)];
    if (bound == NULL || bound == tensor->data) continue;
    j->session->counters.copied_bytes += copy_box(&padding->boxes[i], tensor, bound, true);
  }
}

mllm_status mllm_padded_run(mllm_session *session, const mllm_entry_record *entry,
                            mllm_error *error) {
  job j = {.session = session, .program = &session->model->program, .entry = entry, .error = error};
  (void)mllm_buckets_read(j.program, entry, &j.buckets);
  mllm_status status = fit(&j);
  if (status != MLLM_OK) return status;
  describe(&j);
  pad(&j);
  mllm_tensor *tensors = session->padding.tensors;
  status = mllm_run(session, (uint32_t)(j.graph - j.program->entries), tensors, j.graph->n_inputs,
                    tensors + j.graph->n_inputs, j.graph->n_outputs, error);
  if (status == MLLM_OK) cut(&j);
  return status;
}

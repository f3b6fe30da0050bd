/* program.c - the reader of program.bin. Nothing in the file is believed: after mllm_program_read
 * every reference is in range, so that the executor need not look again. What depends on values
 * known only at run time (dims, operand shapes) is checked by the executor and the kernels. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#include "buckets.h"
#include "caches.h"
#include "status.h"

/* EXPR_DEPTH bounds the evaluator's stack; the rest keep a hostile file from costing more than
 * linear time, as ranges may overlap. */
enum {
  EXPR_DEPTH = 16,
  EXPR_WORDS = 4096,
  STAGE_INPUTS = 65536,
  STAGE_OUTPUTS = 64,
  ENTRIES = 1024
};

static const uint32_t record_bytes[MLLM_SECTION_COUNT] = {
    [MLLM_SECTION_STRINGS] = 1,
    [MLLM_SECTION_SYMBOLS] = sizeof(mllm_symbol_record),
    [MLLM_SECTION_EXPR_WORDS] = sizeof(int64_t),
    [MLLM_SECTION_EXPRS] = sizeof(mllm_expr_record),
    [MLLM_SECTION_TENSORS] = sizeof(mllm_tensor_record),
    [MLLM_SECTION_ARG_IDS] = sizeof(uint32_t),
    [MLLM_SECTION_PARAMS] = sizeof(int64_t),
    [MLLM_SECTION_PARAM_KINDS] = 1,
    [MLLM_SECTION_KERNELS] = sizeof(mllm_kernel_record),
    [MLLM_SECTION_STAGES] = sizeof(mllm_stage_record),
    [MLLM_SECTION_ENTRIES] = sizeof(mllm_entry_record),
    [MLLM_SECTION_CACHES] = sizeof(mllm_cache_record),
};

static const char *const section_names[MLLM_SECTION_COUNT] = {
    "strings", "symbols",     "expr_words", "exprs",  "tensors", "arg_ids",
    "params",  "param_kinds", "kernels",    "stages", "entries", "caches"};

static mllm_status bad(mllm_error *error, const char *what, uint32_t index) {
  return mllm_fail(error, MLLM_INVALID_PROGRAM, MLLM_CODE_PROGRAM, "malformed program: %s %u", what,
                   index);
}

static bool is_string(const mllm_program *program, uint32_t reference) {
  return reference < program->counts[MLLM_SECTION_STRINGS];
}

/* begin + count <= limit, without overflow */
static bool is_range(uint32_t begin, uint32_t count, uint32_t limit) {
  return (uint64_t)begin + count <= limit;
}

static mllm_status read_sections(mllm_program *program, size_t size, mllm_error *error) {
  const void *base[MLLM_SECTION_COUNT];
  for (uint32_t i = 0; i < MLLM_SECTION_COUNT; i++) {
    mllm_section_record section;
    memcpy(&section, program->bytes + MLLM_HEADER_SECTIONS + i * sizeof section, sizeof section);
    const uint64_t bytes = (uint64_t)section.count * record_bytes[i];
    if (section.offset % 8 != 0 || section.offset > size || bytes > size - section.offset) {
      return mllm_fail(error, MLLM_INVALID_PROGRAM, MLLM_CODE_PROGRAM,
                       "malformed program: section '%s' lies outside of the file's %zu bytes",
                       section_names[i], size);
    }
    base[i] = program->bytes + section.offset;
    program->counts[i] = section.count;
  }
  program->strings = base[MLLM_SECTION_STRINGS];
  program->symbols = base[MLLM_SECTION_SYMBOLS];
  program->expr_words = base[MLLM_SECTION_EXPR_WORDS];
  program->exprs = base[MLLM_SECTION_EXPRS];
  program->tensors = base[MLLM_SECTION_TENSORS];
  program->arg_ids = base[MLLM_SECTION_ARG_IDS];
  program->params = base[MLLM_SECTION_PARAMS];
  program->param_kinds = base[MLLM_SECTION_PARAM_KINDS];
  program->kernels = base[MLLM_SECTION_KERNELS];
  program->stages = base[MLLM_SECTION_STAGES];
  program->entries = base[MLLM_SECTION_ENTRIES];
  program->caches = base[MLLM_SECTION_CACHES];
  memcpy(&program->arena_bytes, program->bytes + MLLM_HEADER_ARENA_BYTES, 8);
  memcpy(&program->weight_bytes, program->bytes + MLLM_HEADER_WEIGHT_BYTES, 8);
  const uint32_t strings = program->counts[MLLM_SECTION_STRINGS];
  if (strings > 0 && program->strings[strings - 1] != '\0') {
    return bad(error, "strings end without NUL at", strings);
  }
  if (program->arena_bytes > SIZE_MAX / 2 || program->weight_bytes > SIZE_MAX / 2) {
    return bad(error, "arena or weights exceed the address space: header at", 0);
  }
  return MLLM_OK;
}

static mllm_status check_symbols(const mllm_program *program, mllm_error *error) {
  for (uint32_t i = 0; i < program->counts[MLLM_SECTION_SYMBOLS]; i++) {
    const mllm_symbol_record *symbol = &program->symbols[i];
    if (!is_string(program, symbol->name) || symbol->max < 0) return bad(error, "symbol", i);
  }
  return MLLM_OK;
}

/* A postfix program that needs at most EXPR_DEPTH values and leaves one. */
static bool is_expr(const mllm_program *program, const mllm_expr_record *expr) {
  if (!is_range(expr->start, expr->count, program->counts[MLLM_SECTION_EXPR_WORDS])) return false;
  if (expr->count % 2 != 0 || expr->count > EXPR_WORDS) return false;
  uint32_t depth = 0;
  for (uint32_t i = 0; i < expr->count; i += 2) {
    const int64_t op = program->expr_words[expr->start + i];
    const int64_t value = program->expr_words[expr->start + i + 1];
    if (op < MLLM_EXPR_CONST || op > MLLM_EXPR_MAX) return false;
    if (op == MLLM_EXPR_SYM && (value < 0 || value >= program->counts[MLLM_SECTION_SYMBOLS])) {
      return false;
    }
    if (op <= MLLM_EXPR_SYM) {
      if (++depth > EXPR_DEPTH) return false;
      continue;
    }
    if (depth < 2) return false;
    depth--;
  }
  return depth == 1;
}

static mllm_status check_exprs(const mllm_program *program, mllm_error *error) {
  for (uint32_t i = 0; i < program->counts[MLLM_SECTION_EXPRS]; i++) {
    if (!is_expr(program, &program->exprs[i])) return bad(error, "expr", i);
  }
  return MLLM_OK;
}

static bool is_tensor(const mllm_program *program, const mllm_tensor_record *tensor) {
  const size_t element = mllm_dtype_bytes(tensor->dtype);
  if (!is_string(program, tensor->name) || element == 0) return false;
  if (tensor->rank > MLLM_MAX_RANK || tensor->storage > MLLM_STORAGE_IO) return false;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->dims[i] >= program->counts[MLLM_SECTION_EXPRS]) return false;
  }
  if (tensor->storage == MLLM_STORAGE_IO && tensor->offset == MLLM_NO_SLOT) return true;
  const uint64_t limit =
      tensor->storage == MLLM_STORAGE_WEIGHT ? program->weight_bytes : program->arena_bytes;
  if (tensor->offset % element != 0) return false;
  return tensor->offset <= limit && tensor->max_bytes <= limit - tensor->offset;
}

static mllm_status check_tensors(const mllm_program *program, mllm_error *error) {
  for (uint32_t i = 0; i < program->counts[MLLM_SECTION_TENSORS]; i++) {
    if (!is_tensor(program, &program->tensors[i])) return bad(error, "tensor", i);
  }
  for (uint32_t i = 0; i < program->counts[MLLM_SECTION_ARG_IDS]; i++) {
    const uint32_t id = program->arg_ids[i];
    if (id != MLLM_NONE && id >= program->counts[MLLM_SECTION_TENSORS]) {
      return bad(error, "argument", i);
    }
  }
  return MLLM_OK;
}

static mllm_status check_params(const mllm_program *program, mllm_error *error) {
  const uint32_t count = program->counts[MLLM_SECTION_PARAMS];
  if (program->counts[MLLM_SECTION_PARAM_KINDS] != count) {
    return bad(error, "as many param kinds as params, not", count);
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint8_t kind = program->param_kinds[i];
    const int64_t value = program->params[i];
    if (kind > MLLM_PARAM_STRING) return bad(error, "param", i);
    if (kind == MLLM_PARAM_STRING &&
        (value < 0 || value >= program->counts[MLLM_SECTION_STRINGS])) {
      return bad(error, "param", i);
    }
    if (kind == MLLM_PARAM_EXPR && (value < 0 || value >= program->counts[MLLM_SECTION_EXPRS])) {
      return bad(error, "param", i);
    }
  }
  return MLLM_OK;
}

static mllm_status resolve_kernels(mllm_program *program, mllm_error *error) {
  const uint32_t count = program->counts[MLLM_SECTION_KERNELS];
  program->functions = calloc((size_t)count + 1, sizeof *program->functions);
  if (program->functions == NULL) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for %u kernels",
                     count);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (!is_string(program, program->kernels[i].name)) return bad(error, "kernel", i);
    const char *name = mllm_program_string(program, program->kernels[i].name);
    program->functions[i] = mllm_find_kernel(name);
    if (program->functions[i] == NULL) {
      return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_KERNEL,
                       "this runtime has no kernel '%s' (it is version %s)", name, mllm_version());
    }
  }
  return MLLM_OK;
}

static bool is_stage(const mllm_program *program, const mllm_stage_record *stage) {
  if (stage->n_in > STAGE_INPUTS || stage->n_out > STAGE_OUTPUTS) return false;
  const uint32_t operands = stage->n_in + stage->n_out;
  if (stage->kernel >= program->counts[MLLM_SECTION_KERNELS]) return false;
  if (!is_range(stage->first_arg, operands, program->counts[MLLM_SECTION_ARG_IDS])) return false;
  if (!is_range(stage->first_param, stage->n_params, program->counts[MLLM_SECTION_PARAMS])) {
    return false;
  }
  if (!is_string(program, stage->location)) return false;
  for (uint32_t i = 0; i < stage->n_out; i++) {
    const uint32_t id = program->arg_ids[stage->first_arg + stage->n_in + i];
    if (id == MLLM_NONE || program->tensors[id].storage == MLLM_STORAGE_WEIGHT) return false;
  }
  return true;
}

/* Two strings, and no operand is absent. */
static bool is_device_call(const mllm_program *program, const mllm_stage_record *stage) {
  const uint8_t *kinds = program->param_kinds + stage->first_param;
  if (stage->n_params != 2) return false;
  if (kinds[0] != MLLM_PARAM_STRING || kinds[1] != MLLM_PARAM_STRING) return false;
  for (uint32_t i = 0; i < stage->n_in; i++) {
    if (program->arg_ids[stage->first_arg + i] == MLLM_NONE) return false;
  }
  return true;
}

static mllm_status check_stages(mllm_program *program, mllm_error *error) {
  for (uint32_t i = 0; i < program->counts[MLLM_SECTION_STAGES]; i++) {
    const mllm_stage_record *stage = &program->stages[i];
    if (!is_stage(program, stage)) return bad(error, "stage", i);
    const bool calls = program->functions[stage->kernel] == mllm_k_device_call;
    if (calls && !is_device_call(program, stage)) return bad(error, "stage", i);
    const uint32_t operands = stage->n_in + stage->n_out;
    if (operands > program->max_operands) program->max_operands = operands;
    if (stage->n_params > program->max_params) program->max_params = stage->n_params;
  }
  return MLLM_OK;
}

static bool is_io(const mllm_program *program, uint32_t first, uint32_t count) {
  if (!is_range(first, count, program->counts[MLLM_SECTION_ARG_IDS])) return false;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t id = program->arg_ids[first + i];
    if (id == MLLM_NONE || program->tensors[id].storage != MLLM_STORAGE_IO) return false;
  }
  return true;
}

/* No input of the entry is an output, and no stage writes to one: the caller's memory is read-only.
 * is_input is [tensors], all false before and after. */
static bool keeps_inputs(const mllm_program *program, const mllm_entry_record *entry,
                         bool *is_input) {
  bool keeps = true;
  const uint32_t *inputs = program->arg_ids + entry->first_input;
  for (uint32_t i = 0; i < entry->n_inputs; i++) is_input[inputs[i]] = true;
  const uint32_t *results = program->arg_ids + entry->first_output;
  for (uint32_t i = 0; i < entry->n_outputs; i++) keeps = keeps && !is_input[results[i]];
  for (uint32_t s = 0; s < entry->n_stages; s++) {
    const mllm_stage_record *stage = &program->stages[entry->first_stage + s];
    const uint32_t *outs = program->arg_ids + stage->first_arg + stage->n_in;
    for (uint32_t o = 0; o < stage->n_out; o++) keeps = keeps && !is_input[outs[o]];
  }
  for (uint32_t i = 0; i < entry->n_inputs; i++) is_input[inputs[i]] = false;
  return keeps;
}

static bool is_entry(const mllm_program *program, const mllm_entry_record *entry) {
  return is_string(program, entry->name) && is_string(program, entry->role) &&
         is_range(entry->first_stage, entry->n_stages, program->counts[MLLM_SECTION_STAGES]) &&
         is_io(program, entry->first_input, entry->n_inputs) &&
         is_io(program, entry->first_output, entry->n_outputs) && entry->cache >= -1 &&
         entry->cache < (int64_t)program->counts[MLLM_SECTION_CACHES];
}

static mllm_status check_entries(mllm_program *program, mllm_error *error) {
  const uint32_t count = program->counts[MLLM_SECTION_ENTRIES];
  if (count > ENTRIES) return bad(error, "too many entries:", count);
  bool *is_input = calloc((size_t)program->counts[MLLM_SECTION_TENSORS] + 1, sizeof *is_input);
  if (is_input == NULL) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to check %u entries",
                     count);
  }
  mllm_status status = MLLM_OK;
  for (uint32_t i = 0; i < count && status == MLLM_OK; i++) {
    const mllm_entry_record *entry = &program->entries[i];
    if (!is_entry(program, entry) || !keeps_inputs(program, entry, is_input)) {
      status = bad(error, "entry", i);
    }
  }
  /* A table speaks of the entries behind its own: all are in range by now. */
  for (uint32_t i = 0; i < count && status == MLLM_OK; i++) {
    if (program->entries[i].buckets != 0 && !mllm_buckets_check(program, i)) {
      status = bad(error, "buckets of entry", i);
    }
  }
  free(is_input);
  return status;
}

static mllm_status read_checked(mllm_program *program, size_t size, mllm_error *error) {
  mllm_status status = read_sections(program, size, error);
  if (status == MLLM_OK) status = check_symbols(program, error);
  if (status == MLLM_OK) status = check_exprs(program, error);
  if (status == MLLM_OK) status = check_tensors(program, error);
  if (status == MLLM_OK) status = check_params(program, error);
  if (status == MLLM_OK) status = resolve_kernels(program, error);
  if (status == MLLM_OK) status = check_stages(program, error);
  if (status == MLLM_OK) status = check_entries(program, error);
  if (status == MLLM_OK) status = mllm_caches_check(program, error);
  return status;
}

mllm_status mllm_program_read(const void *bytes, size_t size, mllm_program *program,
                              mllm_error *error) {
  memset(program, 0, sizeof *program);
  if (size < MLLM_HEADER_BYTES || memcmp(bytes, MLLM_PROGRAM_MAGIC, 8) != 0) {
    return mllm_fail(error, MLLM_INVALID_PROGRAM, MLLM_CODE_PROGRAM, "this is not an mllm program");
  }
  uint32_t abi;
  memcpy(&abi, (const unsigned char *)bytes + MLLM_HEADER_ABI, sizeof abi);
  if (abi != MLLM_ABI_VERSION) {
    return mllm_fail(error, MLLM_INVALID_PROGRAM, MLLM_CODE_VERSION,
                     "the program has ABI %u, this runtime reads %d", abi, MLLM_ABI_VERSION);
  }
  program->bytes = malloc(size);
  if (program->bytes == NULL) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                     "no memory for a program of %zu bytes", size);
  }
  memcpy(program->bytes, bytes, size);
  const mllm_status status = read_checked(program, size, error);
  if (status != MLLM_OK) mllm_program_free(program);
  return status;
}

void mllm_program_free(mllm_program *program) {
  free(program->functions);
  free(program->bytes);
  memset(program, 0, sizeof *program);
}

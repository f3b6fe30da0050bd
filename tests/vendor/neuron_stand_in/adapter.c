/* A stand-in for libneuron_adapter.so that records the networks that it is asked to compile.
 *
 * It has the entry points that LiteRT's plugin for MediaTek looks up to compile ahead of time. Their
 * signatures are those of Android's NNAPI under other names; it computes nothing. A network that
 * breaks a rule of that interface (an index without operand, a constant of another size, an operand
 * read before it is made, codes for each channel without scales) is refused with a line on stderr.
 *
 * Environment:
 *   STAND_IN_VERSION   what Neuron_getVersion answers: 8.2.24
 *   STAND_IN_FOLDER    where NAME.txt and NAME.bin of each compiled network are written
 *   STAND_IN_REFUSED   operations that it does not support, by code: ,25,102,
 *
 * NAME.txt has a line an entry, in the order in which they came:
 *   operand TYPE SCALE ZERO OFFSET BYTES CHANNEL_AXIS CHANNELS SCALES_OFFSET RANK EXTENT..
 *   operation CODE INPUTS INDEX.. OUTPUTS INDEX..
 *   inputs COUNT INDEX..
 *   outputs COUNT INDEX..
 *   relaxed 0 or 1
 * Offsets count bytes of NAME.bin; -1 where there are none.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_ERROR = 0, BAD_DATA = 4, OP_FAILED = 5, BAD_STATE = 7 };
enum { MOST_RANK = 8, UNKNOWN_OPERATION = 10001, EXTENSION = 0x20000 };

typedef struct {
  int32_t type;
  uint32_t rank;
  const uint32_t *extents;
  float scale;
  int32_t zero;
} OperandType;

typedef struct {
  uint32_t axis, count;
  const float *scales;
} ChannelScales; /* of both per-channel setters; what follows in the second are zero points */

typedef struct {
  uint8_t major, minor, patch;
} Version;

typedef struct {
  int32_t type, zero;
  float scale;
  uint32_t rank, extents[MOST_RANK];
  long offset, bytes, scales_offset;
  uint32_t axis, channels;
  bool defined;
} Operand;

typedef struct {
  int32_t code;
  uint32_t *inputs, *outputs, input_count, output_count;
} Operation;

typedef struct {
  char name[64];
  Operand *operands;
  Operation *operations;
  uint32_t operand_count, operation_count, *inputs, *outputs, input_count, output_count;
  uint8_t *bytes; /* constants and scales, one behind the other */
  size_t size;
  bool finished, relaxed;
} Model;

typedef struct {
  Model *model;
} Compilation;

static int refuse(const char *what, long at) {
  fprintf(stderr, "ERROR: [stand-in] %s (%ld)\n", what, at);
  return BAD_DATA;
}

static long width(int32_t type) { /* bytes of an element; 0: any number */
  switch (type) {
    case 0: case 1: case 2: case 3: case 4: case 9014: return 4;
    case 7: case 8: case 10: case 12: return 2;
    case 5: case 6: case 9: case 11: case 13: case 14: return 1;
    default: return type >= 9000 && type < 10000 ? 1 : 0; /* 4-bit codes come unpacked */
  }
}

static bool is_per_channel(int32_t type) {
  return type == 11 || type == 9002 || type == 9008 || type == 9011 || type == 9013 || type == 9014;
}

static long keep(Model *model, const void *bytes, size_t size) {
  long offset = (long)model->size;
  model->bytes = realloc(model->bytes, model->size + size + 1);
  memcpy(model->bytes + model->size, bytes, size);
  model->size += size;
  return offset;
}

static uint32_t *copied(const uint32_t *indices, uint32_t count) {
  uint32_t *copy = malloc((count + 1) * sizeof *copy);
  memcpy(copy, indices, count * sizeof *copy);
  return copy;
}

int Neuron_getVersion(Version *version) {
  unsigned major = 8, minor = 2, patch = 24;
  const char *wanted = getenv("STAND_IN_VERSION");
  if (wanted) sscanf(wanted, "%u.%u.%u", &major, &minor, &patch);
  *version = (Version){(uint8_t)major, (uint8_t)minor, (uint8_t)patch};
  return NO_ERROR;
}

int NeuronModel_create(Model **model) {
  *model = calloc(1, sizeof **model);
  return NO_ERROR;
}

void NeuronModel_free(Model *model) {
  if (!model) return;
  for (uint32_t i = 0; i < model->operation_count; i++) {
    free(model->operations[i].inputs);
    free(model->operations[i].outputs);
  }
  free(model->operands);
  free(model->operations);
  free(model->inputs);
  free(model->outputs);
  free(model->bytes);
  free(model);
}

int NeuronModel_setName(Model *model, const char *name) {
  snprintf(model->name, sizeof model->name, "%s", name);
  return NO_ERROR;
}

int NeuronModel_addOperand(Model *model, const OperandType *type) {
  if (model->finished) return BAD_STATE;
  uint32_t at = model->operand_count;
  if (type->rank > MOST_RANK) return refuse("too many axes of operand", at);
  model->operands = realloc(model->operands, (at + 1) * sizeof *model->operands);
  Operand made = {.type = type->type, .zero = type->zero, .scale = type->scale,
                  .rank = type->rank, .offset = -1, .bytes = 0, .scales_offset = -1};
  for (uint32_t i = 0; i < type->rank; i++) {
    made.extents[i] = type->extents[i];
    if (!made.extents[i] || made.extents[i] > INT32_MAX) return refuse("open shape of operand", at);
  }
  model->operands[at] = made;
  model->operand_count++;
  return NO_ERROR;
}

int NeuronModel_setOperandValue(Model *model, int32_t index, const void *value, size_t size) {
  if (index < 0 || (uint32_t)index >= model->operand_count) return refuse("no operand", index);
  Operand *operand = &model->operands[index];
  size_t expected = (size_t)width(operand->type);
  for (uint32_t i = 0; i < operand->rank; i++) expected *= operand->extents[i];
  if (expected && expected != size) return refuse("another size of operand", index);
  operand->offset = keep(model, value, size);
  operand->bytes = (long)size;
  operand->defined = true;
  return NO_ERROR;
}

static int set_scales(Model *model, int32_t index, const ChannelScales *given) {
  if (index < 0 || (uint32_t)index >= model->operand_count) return refuse("no operand", index);
  Operand *operand = &model->operands[index];
  if (given->axis >= operand->rank || operand->extents[given->axis] != given->count)
    return refuse("another count of scales of operand", index);
  for (uint32_t i = 0; i < given->count; i++)
    if (!(given->scales[i] > 0)) return refuse("a scale that is not positive, of operand", index);
  operand->axis = given->axis;
  operand->channels = given->count;
  operand->scales_offset = keep(model, given->scales, given->count * sizeof *given->scales);
  return NO_ERROR;
}

int NeuronModel_setOperandSymmPerChannelQuantParams(Model *model, int32_t index,
                                                    const ChannelScales *given) {
  return set_scales(model, index, given);
}

int NeuronModel_setOperandPerChannelQuantParams(Model *model, int32_t index,
                                                const ChannelScales *given) {
  return set_scales(model, index, given);
}

int NeuronModel_getExtensionOperandType(Model *model, const char *name, uint16_t code, int32_t *type) {
  (void)model;
  (void)name;
  *type = EXTENSION | code;
  return NO_ERROR;
}

int NeuronModel_getExtensionOperationType(Model *model, const char *name, uint16_t code,
                                          int32_t *type) {
  return NeuronModel_getExtensionOperandType(model, name, code, type);
}

int NeuronModel_addOperation(Model *model, int32_t code, uint32_t input_count,
                             const uint32_t *inputs, uint32_t output_count,
                             const uint32_t *outputs) {
  for (uint32_t i = 0; i < input_count; i++)
    if (inputs[i] >= model->operand_count) return refuse("no operand for operation", code);
  for (uint32_t i = 0; i < output_count; i++) {
    if (outputs[i] >= model->operand_count || model->operands[outputs[i]].defined)
      return refuse("no operand to write for operation", code);
    model->operands[outputs[i]].defined = true;
  }
  size_t size = (model->operation_count + 1) * sizeof *model->operations;
  model->operations = realloc(model->operations, size);
  model->operations[model->operation_count++] = (Operation){
      .code = code, .input_count = input_count, .output_count = output_count,
      .inputs = copied(inputs, input_count), .outputs = copied(outputs, output_count)};
  return NO_ERROR;
}

int NeuronModel_identifyInputsAndOutputs(Model *model, uint32_t input_count, const uint32_t *inputs,
                                         uint32_t output_count, const uint32_t *outputs) {
  for (uint32_t i = 0; i < input_count; i++) {
    if (inputs[i] >= model->operand_count) return refuse("no operand for input", i);
    model->operands[inputs[i]].defined = true;
  }
  for (uint32_t i = 0; i < output_count; i++)
    if (outputs[i] >= model->operand_count) return refuse("no operand for output", i);
  model->inputs = copied(inputs, input_count);
  model->outputs = copied(outputs, output_count);
  model->input_count = input_count;
  model->output_count = output_count;
  return NO_ERROR;
}

int NeuronModel_relaxComputationFloat32toFloat16(Model *model, bool relaxed) {
  model->relaxed = relaxed;
  return NO_ERROR;
}

int NeuronModel_finish(Model *model) {
  for (uint32_t i = 0; i < model->operation_count; i++)
    for (uint32_t k = 0; k < model->operations[i].input_count; k++)
      if (!model->operands[model->operations[i].inputs[k]].defined)
        return refuse("an operand that nothing makes, read by operation", model->operations[i].code);
  for (uint32_t i = 0; i < model->operand_count; i++)
    if (is_per_channel(model->operands[i].type) && !model->operands[i].channels)
      return refuse("codes for each channel without scales, of operand", i);
  model->finished = true;
  return NO_ERROR;
}

int NeuronCompilation_create(Model *model, Compilation **compilation) {
  if (!model->finished) return BAD_STATE;
  *compilation = calloc(1, sizeof **compilation);
  (*compilation)->model = model;
  return NO_ERROR;
}

int NeuronCompilation_createWithOptions(Model *model, Compilation **compilation, const char *options) {
  (void)options;
  return NeuronCompilation_create(model, compilation);
}

void NeuronCompilation_free(Compilation *compilation) { free(compilation); }

int NeuronCompilation_setPriority(Compilation *compilation, int priority) {
  (void)compilation;
  (void)priority;
  return NO_ERROR;
}

int NeuronCompilation_setPreference(Compilation *compilation, int32_t preference) {
  return NeuronCompilation_setPriority(compilation, preference);
}

int NeuronCompilation_setOptimizationHint(Compilation *compilation, uint32_t hint) {
  return NeuronCompilation_setPriority(compilation, (int)hint);
}

int NeuronCompilation_setOptimizationString(Compilation *compilation, const char *options) {
  (void)options;
  return NeuronCompilation_setPriority(compilation, 0);
}

int NeuronCompilation_getSupportedOperations(Compilation *compilation, uint32_t count, bool *supported) {
  const Model *model = compilation->model;
  if (count != model->operation_count) return refuse("asked about another count of operations", count);
  const char *refused = getenv("STAND_IN_REFUSED");
  for (uint32_t i = 0; i < count; i++) {
    char code[16];
    snprintf(code, sizeof code, ",%d,", model->operations[i].code);
    supported[i] = model->operations[i].code != UNKNOWN_OPERATION && !(refused && strstr(refused, code));
  }
  return NO_ERROR;
}

static void write_list(FILE *file, const char *name, const uint32_t *indices, uint32_t count) {
  fprintf(file, "%s %u", name, count);
  for (uint32_t i = 0; i < count; i++) fprintf(file, " %u", indices[i]);
}

static void write_network(FILE *file, const Model *model) {
  for (uint32_t i = 0; i < model->operand_count; i++) {
    const Operand *o = &model->operands[i];
    fprintf(file, "operand %d %.9g %d %ld %ld %u %u %ld %u", o->type, (double)o->scale, o->zero,
            o->offset, o->bytes, o->axis, o->channels, o->scales_offset, o->rank);
    for (uint32_t k = 0; k < o->rank; k++) fprintf(file, " %u", o->extents[k]);
    fputc('\n', file);
  }
  for (uint32_t i = 0; i < model->operation_count; i++) {
    const Operation *o = &model->operations[i];
    fprintf(file, "operation %d", o->code);
    write_list(file, "", o->inputs, o->input_count);
    write_list(file, "", o->outputs, o->output_count);
    fputc('\n', file);
  }
  write_list(file, "inputs", model->inputs, model->input_count);
  write_list(file, "\noutputs", model->outputs, model->output_count);
  fprintf(file, "\nrelaxed %d\n", model->relaxed);
}

static FILE *opened(const Model *model, const char *suffix) {
  char path[4096];
  const char *folder = getenv("STAND_IN_FOLDER");
  snprintf(path, sizeof path, "%s/%s.%s", folder ? folder : ".", model->name, suffix);
  return fopen(path, "wb");
}

int NeuronCompilation_finish(Compilation *compilation) {
  const Model *model = compilation->model;
  for (uint32_t i = 0; i < model->operation_count; i++)
    if (model->operations[i].code == UNKNOWN_OPERATION) return OP_FAILED;
  FILE *text = opened(model, "txt"), *bytes = opened(model, "bin");
  if (!text || !bytes) return OP_FAILED;
  write_network(text, model);
  bool whole = fwrite(model->bytes, 1, model->size, bytes) == model->size;
  return (fclose(text) | fclose(bytes)) == 0 && whole ? NO_ERROR : OP_FAILED;
}

int NeuronCompilation_getCompiledNetworkSize(Compilation *compilation, size_t *size) {
  *size = sizeof compilation->model->name;
  return NO_ERROR;
}

int NeuronCompilation_storeCompiledNetwork(Compilation *compilation, void *buffer, size_t size) {
  if (size < sizeof compilation->model->name) return BAD_DATA;
  memcpy(buffer, compilation->model->name, sizeof compilation->model->name);
  return NO_ERROR;
}

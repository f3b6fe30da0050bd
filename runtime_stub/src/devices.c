/* devices.c - opening the devices that a program calls, and calling them. */
#include "devices.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "status.h"

static mllm_status no_memory(mllm_error *error) {
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for devices");
}

/* What a device says of itself in its own words, as a fault of the runtime's. */
static mllm_status failed(mllm_error *error, mllm_status status, const char *device,
                          const mllm_error *own) {
  const char *words = own->message[0] == '\0' ? mllm_status_name(status) : own->message;
  return mllm_fail(error, status, MLLM_CODE_DEVICE, "the device '%s' failed: %s", device, words);
}

static mllm_status find(const mllm_devices *made, const char *name, const char *function,
                        size_t *index, mllm_error *error) {
  for (*index = 0; *index < made->n; (*index)++)
    if (strcmp(made->devices[*index].name, name) == 0) return MLLM_OK;
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_NO_DEVICE,
                   "'%s' runs on the device '%s', which is not registered", function, name);
}

static mllm_status open_device(mllm_devices *made, size_t index, const mllm_bundle *bundle,
                               mllm_error *error) {
  const mllm_device *device = &made->devices[index];
  if (made->is_open[index]) return MLLM_OK;
  if (bundle != NULL) {
    const mllm_status status = mllm_bundle_check_device(bundle, device, error);
    if (status != MLLM_OK) return status;
  }
  mllm_error own = {0};
  const mllm_status status = device->open(device->context, bundle, &made->opened[index], &own);
  if (status != MLLM_OK) return failed(error, status, device->name, &own);
  made->is_open[index] = true;
  return MLLM_OK;
}

static mllm_status prepare(const mllm_program *program, uint32_t stage, const mllm_bundle *bundle,
                           mllm_devices *made, mllm_error *error) {
  const int64_t *params = program->params + program->stages[stage].first_param;
  const char *name = mllm_program_string(program, (uint32_t)params[0]);
  const char *function = mllm_program_string(program, (uint32_t)params[1]);
  size_t index = 0;
  mllm_status status = find(made, name, function, &index, error);
  if (status == MLLM_OK) status = open_device(made, index, bundle, error);
  if (status != MLLM_OK) return status;
  mllm_device_function *call = &made->calls[stage];
  const mllm_device *device = &made->devices[index];
  mllm_error own = {0};
  status = device->prepare(device->context, made->opened[index], function, &call->function, &own);
  if (status != MLLM_OK) return failed(error, status, name, &own);
  call->device = device;
  call->opened = made->opened[index];
  return MLLM_OK;
}

static mllm_status check_device(const mllm_device *device, mllm_error *error) {
  if (device->name == NULL || device->open == NULL || device->prepare == NULL ||
      device->run == NULL || device->close == NULL)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "a device lacks its name or a function");
  if ((uint32_t)device->memory >= MLLM_MEMORY_DOMAINS ||
      strcmp(device->name, MLLM_DEVICE_CPU) == 0)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "no device '%s' of memory domain %u can be registered", device->name,
                     (unsigned int)device->memory);
  return MLLM_OK;
}

static mllm_status open_all(const mllm_program *program, const mllm_bundle *bundle,
                            mllm_devices *made, mllm_error *error) {
  mllm_status status = MLLM_OK;
  for (size_t i = 0; i < made->n && status == MLLM_OK; i++)
    status = check_device(&made->devices[i], error);
  for (uint32_t i = 0; i < program->counts[MLLM_SECTION_STAGES] && status == MLLM_OK; i++)
    if (program->functions[program->stages[i].kernel] == mllm_k_device_call)
      status = prepare(program, i, bundle, made, error);
  return status;
}

mllm_status mllm_devices_open(const mllm_program *program, const mllm_bundle *bundle,
                              const mllm_device *devices, size_t n, mllm_devices *made,
                              mllm_error *error) {
  if (n > 0 && devices == NULL)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "a pointer is NULL");
  made->devices = calloc(n + 1, sizeof *made->devices);
  made->opened = calloc(n + 1, sizeof *made->opened);
  made->is_open = calloc(n + 1, sizeof *made->is_open);
  made->calls =
      calloc((size_t)program->counts[MLLM_SECTION_STAGES] + 1, sizeof *made->calls);
  mllm_status status = MLLM_OK;
  if (made->devices == NULL || made->opened == NULL || made->is_open == NULL ||
      made->calls == NULL) {
    status = no_memory(error);
  } else {
    if (n > 0) memcpy(made->devices, devices, n * sizeof *devices);
    made->n = n;
    status = open_all(program, bundle, made, error);
  }
  if (status != MLLM_OK) mllm_devices_close(made);
  return status;
}

void mllm_devices_close(mllm_devices *devices) {
  for (size_t i = 0; i < devices->n; i++)
    if (devices->is_open[i]) devices->devices[i].close(devices->devices[i].context, devices->opened[i]);
  free(devices->devices);
  free(devices->opened);
  free(devices->is_open);
  free(devices->calls);
  memset(devices, 0, sizeof *devices);
}

/* What the device gets for an operand: its address there. Processor and device may see the arena at
 * different addresses; other memory is the processor's alone. */
static mllm_status pass(const mllm_call *call, const mllm_device *device, const mllm_view *view,
                        mllm_tensor *tensor) {
  *tensor = (mllm_tensor){
      .data = view->data, .bytes = mllm_dtype_bytes(view->dtype), .dtype = view->dtype};
  tensor->rank = view->rank;
  for (uint32_t i = 0; i < view->rank; i++) {
    tensor->dims[i] = view->dims[i];
    tensor->bytes *= (size_t)view->dims[i]; /* within the plan: view_operand has checked it */
  }
  if (device->memory == MLLM_MEMORY_HOST) return MLLM_OK;
  tensor->data = mllm_arena_at(call->arena, view->data, tensor->bytes);
  if (tensor->data != NULL) return MLLM_OK;
  return mllm_fail(call->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_UNSEEN,
                   "the device '%s' cannot see a tensor that is not in the arena of the session",
                   device->name);
}

mllm_status mllm_k_device_call(const mllm_call *call) {
  const mllm_device_function *function = call->function;
  if (function == NULL || function->device == NULL)
    return mllm_fail(call->error, MLLM_UNSUPPORTED, MLLM_CODE_NO_DEVICE,
                     "device_call: no device is registered");
  const mllm_device *device = function->device;
  mllm_status status = MLLM_OK;
  for (uint32_t i = 0; i < call->n_in && status == MLLM_OK; i++)
    status = pass(call, device, &call->in[i], &call->tensors[i]);
  for (uint32_t i = 0; i < call->n_out && status == MLLM_OK; i++)
    status = pass(call, device, &call->out[i], &call->tensors[call->n_in + i]);
  if (status != MLLM_OK) return status;
  mllm_error own = {0};
  status =
      device->run(device->context, function->opened, function->function, call->tensors, call->n_in,
                  call->tensors + call->n_in, call->n_out, &own);
  return status == MLLM_OK ? MLLM_OK : failed(call->error, status, device->name, &own);
}

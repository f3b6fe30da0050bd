/* devices.h - the devices that run functions for a model. */
#ifndef MLLM_OPEN_DEVICES_H
#define MLLM_OPEN_DEVICES_H

#include "bundle.h"
#include "mllm_devices.h"
#include "program.h"

/* A function of a device, ready to run. */
struct mllm_device_function {
  const mllm_device *device;
  void *opened;
  void *function;
};

/* The devices of a model, in the host's order, and the functions that its stages call. */
typedef struct mllm_devices {
  mllm_device *devices; /* [n] copies of the host's */
  void **opened;        /* [n] what open() gave; meaningless where is_open is not set */
  bool *is_open;        /* [n] */
  size_t n;
  mllm_device_function *calls; /* [stages] device NULL: a stage that calls none */
} mllm_devices;

/* Opens the devices that a program calls and prepares their functions. bundle may be NULL; of one,
 * what it says of each device is checked first. On failure nothing is left open. */
mllm_status mllm_devices_open(const mllm_program *program, const mllm_bundle *bundle,
                              const mllm_device *devices, size_t n, mllm_devices *made,
                              mllm_error *error);
void mllm_devices_close(mllm_devices *devices);

/* Whether a bundle's artifact for a device was made for this one: targets/NAME/device.json. */
mllm_status mllm_bundle_check_device(const mllm_bundle *bundle, const mllm_device *device,
                                     mllm_error *error);

#endif /* MLLM_OPEN_DEVICES_H */

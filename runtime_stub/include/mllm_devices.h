/* mllm_devices.h - devices: what runs functions of a model beside this runtime's own kernels. */
#ifndef MLLM_DEVICES_H
#define MLLM_DEVICES_H

#include "mllm_pool.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* The runtime's own kernels: this device is always there, and is not registered. */
#define MLLM_DEVICE_CPU "cpu"

/* A device that the host registers: the functions of a driver, and what they are called with. Strings
 * and context outlive the model. A function that fails returns another status than MLLM_OK and may
 * write its own words to error->message, at most MLLM_MESSAGE_BYTES with NUL; they are told.
 *
 * open is called once for a model, and close once where it gave MLLM_OK; prepare once for each call
 * in the program. What prepare gives belongs to what open gave. run must not keep the tensors: their
 * dtype, rank and dims are those of the function, data and bytes are set, names are NULL. Sessions
 * of one model may call run at the same time.
 *
 * A device of MLLM_MEMORY_HOST gets any memory of the processor's. For one of another domain tensors
 * lie in the session's arena, which comes from a pool that has the domain
 * (mllm_session_options.pool): their addresses are the device's, and the runtime does the cache
 * operations before and after, over the whole arena, and none between two calls in a row. What it
 * cannot see so is refused: the pool when a session is made, a tensor when it runs. */
typedef struct mllm_device {
  const char *name;        /* "tflite", as in the program */
  const char *sdk_version; /* of the vendor's library: "2.3.0"; NULL: not known */
  const char *soc;         /* the chip; NULL: not known */
  mllm_memory memory;      /* the domain in which it reads and writes tensors */
  void *context; /* given to every function */
  mllm_status (*open)(void *context, const mllm_bundle *bundle, void **opened, mllm_error *error);
  mllm_status (*prepare)(void *context, void *opened, const char *name, void **function,
                         mllm_error *error);
  mllm_status (*run)(void *context, void *opened, void *function, const mllm_tensor *inputs,
                     size_t n_inputs, const mllm_tensor *outputs, size_t n_outputs,
                     mllm_error *error);
  void (*close)(void *context, void *opened);
} mllm_device;

/* As mllm_model_create and mllm_bundle_model, with devices. A program that calls a device that is not
 * among them is refused, and so is a bundle whose artifact was made for another version or chip. open
 * gets NULL in the place of a bundle where there is none. */
mllm_status mllm_model_create_on(const void *program, size_t program_bytes, const void *weights,
                                 size_t weight_bytes, const mllm_model_options *options,
                                 const mllm_device *devices, size_t n_devices, mllm_model **model,
                                 mllm_error *error);
mllm_status mllm_bundle_model_on(const mllm_bundle *bundle, const mllm_model_options *options,
                                 const mllm_device *devices, size_t n_devices, mllm_model **model,
                                 mllm_error *error);

/* What a session's runs have called and copied so far. */
typedef struct mllm_counters {
  uint64_t device_calls;    /* functions of devices */
  uint64_t fallback_stages; /* kernels that run what a graph's device refuses */
  uint64_t copied_bytes;    /* from what one entry gave to what another takes */
} mllm_counters;

mllm_counters mllm_session_counters(const mllm_session *session);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MLLM_DEVICES_H */

/* The ABI of every bolt-build engine, version 1.
 *
 * An engine called NAME exports one symbol, `NAME_bolt_v1`, which returns this table; everything else in it is hidden,
 * so any number of engines link into one program. Nothing here throws, exits or prints.
 *
 *   model    immutable: weights and prepared kernels. Shared by any number of threads.
 *   context  mutable: the arena of one plan. One a thread; contexts of one model run at the same time.
 *
 * Every function that can fail returns a bolt_status; last_error() then explains in a sentence (thread-local, valid until the
 * thread's next call into the same engine). After BOLT_DEVICE_ERROR a context stays in error until it is destroyed.
 *
 * A value among the inputs that a step cannot work with, such as an index that lies outside of its axis, is
 * BOLT_INVALID_ARGUMENT: of run() itself on a CPU. On a GPU such an index is moved inside, and the status is that of the first
 * wait() or copy() on the run's stream behind it, or else of the context's next run(), which then has queued nothing. It is
 * said once, and the context stays good.
 */
#ifndef BOLT_ENGINE_H
#define BOLT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum bolt_status {
  BOLT_OK = 0,
  BOLT_INVALID_ARGUMENT = 1, /* the call itself is wrong: null, out of range, unknown batch */
  BOLT_BAD_WEIGHTS = 2,      /* weights unreadable, truncated, damaged, or of another engine */
  BOLT_OUT_OF_MEMORY = 3,
  BOLT_NO_DEVICE = 4,        /* no such device, or too old or too small for this engine */
  BOLT_DEVICE_ERROR = 5,     /* a kernel failed; sticky for the context */
  BOLT_INTERNAL = 6
} bolt_status;

typedef enum bolt_dtype {
  BOLT_F32 = 0, BOLT_F16 = 1, BOLT_BF16 = 2, BOLT_F64 = 3, BOLT_I64 = 4, BOLT_I32 = 5, BOLT_I8 = 6, BOLT_U8 = 7, BOLT_BOOL = 8,
  BOLT_I16 = 9, BOLT_U16 = 10, BOLT_U32 = 11, BOLT_U64 = 12
} bolt_dtype;

typedef enum bolt_layout { BOLT_ROW = 0, BOLT_CHANNELS_LAST = 1 } bolt_layout;
typedef enum bolt_where { BOLT_CPU = 0, BOLT_CUDA = 1 } bolt_where;

#define BOLT_MAX_RANK 8

/* A dense tensor. `shape` is logical (NCHW for images); `layout` says how it lies in memory. */
typedef struct bolt_tensor {
  const char* name; /* ONNX name */
  bolt_dtype dtype;
  bolt_layout layout;
  bolt_where where;
  int32_t rank;
  int64_t shape[BOLT_MAX_RANK];
  size_t bytes;
} bolt_tensor;

typedef struct bolt_model bolt_model;
typedef struct bolt_context bolt_context;

typedef struct bolt_model_options {
  size_t size;              /* sizeof(bolt_model_options) of the caller */
  int32_t device;           /* index among devices of the engine's kind; 0 for a CPU engine */
  int32_t threads;          /* CPU engines: threads a run uses; 0 for as many as the process may use */
  const char* weights_path; /* one of weights_path ... */
  const void* weights;      /* ... and weights with weights_bytes; the memory may go once create has returned */
  size_t weights_bytes;
} bolt_model_options;

/* How runs of a CUDA engine queue their kernels where that is not as fast as they can: to find out what that gains, and for tools
 * that are to see kernels one by one. */
typedef enum bolt_queueing {
  BOLT_QUEUE_SERIAL = 1,    /* each kernel begins when the one in front of it has finished; otherwise some begin before */
  BOLT_QUEUE_UNRECORDED = 2 /* a run queues kernel by kernel; otherwise it is one graph, recorded once */
} bolt_queueing;

typedef struct bolt_context_options {
  size_t size;
  int64_t batch; /* one of batches() */
  /* 0: runs work on the caller's buffers; a CUDA engine updates its graph when they are others than before.
   * 1: the context has buffers of its own, into and out of which each run copies: the caller's may change from run to run at no
   * cost but the copies, and need not be where the ports say. */
  int64_t staged;
  int64_t queueing; /* 0, or some of bolt_queueing added up; CPU engines take no notice */
  const int64_t* sizes; /* of an engine with `dims` the batch and an extent for each of them, in place of `batch`; else NULL */
} bolt_context_options;

/* What a step of a plan did; strings live as long as the library. */
typedef struct bolt_step_info {
  int32_t index;
  const char* name;   /* the layer: name of the ONNX node that the step ends with */
  const char* covers; /* ONNX nodes it computes, separated by '\n' */
  const char* kernel; /* family and parameters */
} bolt_step_info;

/* Called after each step of an observed run with one of its outputs. tensor->name is the ONNX tensor it holds. `data`
 * is only valid during the call. */
typedef void (*bolt_observer)(void* user, const bolt_step_info* step, const bolt_tensor* tensor, const void* data);

typedef struct bolt_engine_v1 {
  size_t size;      /* sizeof(bolt_engine_v1) of the engine; later versions only append */
  uint32_t version; /* 1 */
  const char* name;
  const char* target;
  const char* manifest; /* JSON: what this engine was built from */
  const char* layout_digest;
  int32_t batch_count;
  const int64_t* batches;
  int32_t input_count;
  int32_t output_count;

  const char* (*last_error)(void);
  bolt_status (*create)(const bolt_model_options* options, bolt_model** model);
  void (*destroy)(bolt_model* model); /* after its contexts */
  /* Descriptors of inputs and outputs for a batch; `tensor` is filled in. */
  bolt_status (*input)(int64_t batch, int32_t index, bolt_tensor* tensor);
  bolt_status (*output)(int64_t batch, int32_t index, bolt_tensor* tensor);

  bolt_status (*context_create)(const bolt_model* model, const bolt_context_options* options, bolt_context** context);
  void (*context_destroy)(bolt_context* context);
  size_t (*context_bytes)(const bolt_context* context); /* arena and scratch */
  /* inputs[i] and outputs[i] are the caller's buffers in the descriptors' order, at least `bytes` long, alive until `stream` has
   * passed; those of CUDA engines begin at multiples of 16 bytes, unless the context is staged. `stream` is a cudaStream_t for
   * CUDA engines, which only queue the run; NULL for CPU engines, whose run returns when it is done. Runs of one context work
   * in the same memory: queue them on one stream, or wait between two. */
  bolt_status (*run)(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream);
  /* The same, step by step, with the observer called after each. Slow: for verification. */
  bolt_status (*run_observed)(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream,
                              bolt_observer observer, void* user);

  /* For callers that do not speak to the device themselves: memory where the ports live, ... */
  bolt_status (*allocate)(const bolt_model* model, size_t bytes, void** memory);
  void (*release)(const bolt_model* model, void* memory);
  /* ... a copy between it and memory of the CPU, behind what `stream` has queued, done on return; and a wait for `stream`, whose
   * status is that of all that was queued there. */
  bolt_status (*copy)(const bolt_model* model, void* to, const void* from, size_t bytes, void* stream);
  bolt_status (*wait)(const bolt_model* model, void* stream);

  /* How many steps a batch has, and the seconds that each takes alone, the mean of `repeats` executions one after the other on
   * the device, into seconds[0 ..]. Needs buffers where the ports say; what it leaves in the outputs means nothing. */
  bolt_status (*step_count)(int64_t batch, int32_t* count);
  bolt_status (*time_steps)(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream, int32_t repeats,
                            double* seconds);

  /* Dimensions of which the engine has several extents (dim_count is 0 where it has one of each), and its plans: plan p is for
   * the batch sizes[p * (1 + dim_count)] and the extents behind it. Without `dims` plans are those of `batches`. What takes a
   * batch alone is refused by an engine with `dims`: a batch has several plans there. */
  int32_t dim_count;
  const char* const* dims;
  int32_t plan_count;
  const int64_t* sizes;
  /* The plan for a batch and extents, 1 + dim_count numbers. */
  bolt_status (*find_plan)(const int64_t* sizes, int32_t* plan);
  /* As input(), output() and step_count() are for a batch. */
  bolt_status (*plan_input)(int32_t plan, int32_t index, bolt_tensor* tensor);
  bolt_status (*plan_output)(int32_t plan, int32_t index, bolt_tensor* tensor);
  bolt_status (*plan_steps)(int32_t plan, int32_t* count);

  /* Padding: a plan may run what is smaller than it is. Where it may, `axes` has BOLT_MAX_RANK entries a port, inputs and then
   * outputs: which of a plan's sizes the port's axis follows, or -1. NULL where nothing of this engine is padded. */
  const int8_t* axes;
  /* The plan for these sizes or, where there is none, the least that they fit into padded. */
  bolt_status (*fit_plan)(const int64_t* sizes, int32_t* plan);
  /* run() of a staged context on inputs of these sizes, which are at most its plan's: each axis is as long as `axes` says. The
   * context pads them with zeros behind; outputs are cut back, and what a padded element would be is written nowhere. */
  bolt_status (*run_padded)(bolt_context* context, const int64_t* sizes, const void* const* inputs, void* const* outputs,
                            void* stream);
} bolt_engine_v1;

#ifdef __cplusplus
}
#endif
#endif

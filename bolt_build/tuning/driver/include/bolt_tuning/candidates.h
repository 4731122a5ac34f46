/* The ABI between candidates.so and the driver: what there is to measure, and how it is called. Plain C. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this file: the driver refuses another version. */
#define BOLT_TUNING_VERSION 4

typedef enum bolt_tuning_dtype {
  BOLT_TUNING_F32 = 0,
  BOLT_TUNING_F16 = 1,
  BOLT_TUNING_BF16 = 2,
  BOLT_TUNING_F64 = 3,
  BOLT_TUNING_I64 = 4,
  BOLT_TUNING_I32 = 5,
  BOLT_TUNING_I8 = 6,
  BOLT_TUNING_U8 = 7,
  BOLT_TUNING_BOOL = 8,
  BOLT_TUNING_I16 = 9,
  BOLT_TUNING_U16 = 10,
  BOLT_TUNING_U32 = 11,
  BOLT_TUNING_U64 = 12
} bolt_tuning_dtype;

/* One tensor. `shape` is logical; `text` says how it is stored ("f16/channels_last [32, 64, 56, 56]"). */
typedef struct bolt_tuning_operand {
  const char* text;
  bolt_tuning_dtype dtype;
  int32_t rank;
  const int64_t* shape;
  uint64_t bytes;
  int32_t constant;       /* 1: its values are known when an engine loads; stored row-major */
  int32_t may_be_output;  /* 1: its memory may be output 0's */
  int32_t ascends;        /* 1: a table in ascending order, such as the first pixels of a resampling */
  double low, high;       /* values to try: drawn evenly from between these; or from low to high, in even steps and
                             rounded to the element type, where they ascend */
} bolt_tuning_operand;

/* Given to kernels while they are prepared. `weight` is memory of the host: input `index`, which is constant. */
typedef struct bolt_tuning_prepare {
  void* owner;
  const void* (*weight)(void* owner, int32_t index);
  /* Memory of the GPU, filled once for `key` through memory of the host; null where there is no more. */
  const void* (*shared)(void* owner, const char* key, uint64_t bytes, void (*fill)(void* how, void* memory), void* how);
} bolt_tuning_prepare;

/* Of a run's counters. */
#define BOLT_TUNING_COUNTER_BYTES 16384

/* One launch. Pointers are to memory of the GPU, inputs in the problem's order, constants among them. `overlap`: the
   kernel may begin before the one in front of it has finished, as engines launch it. `counters`: zero when a kernel begins,
   which leaves them so. */
typedef struct bolt_tuning_run {
  const void* const* inputs;
  void* const* outputs;
  void* scratch;
  void* stream;
  int32_t overlap;
  uint32_t* counters;
} bolt_tuning_run;

/* One candidate. `of` is the trial whose settings this one changes, -1 for a trial of the first stage; `predicted` is in
   seconds; `functions` is for candidates.so alone. */
typedef struct bolt_tuning_trial {
  const char* candidate;
  const char* text;
  int32_t of;
  double predicted;
  const void* functions;
} bolt_tuning_trial;

/* `depth` is how many products make one element of the output. `reference` is null where nothing else computes the
   problem: `no_reference` then says why. */
typedef struct bolt_tuning_problem {
  const char* digest;
  const char* text;
  const char* occurs;
  int32_t input_count;
  const bolt_tuning_operand* inputs;
  int32_t output_count;
  const bolt_tuning_operand* outputs;
  double depth;
  const bolt_tuning_trial* reference;
  const char* no_reference;
  int32_t trial_count;
  const bolt_tuning_trial* trials;
} bolt_tuning_problem;

typedef enum bolt_tuning_status {
  BOLT_TUNING_DONE = 0,
  BOLT_TUNING_REFUSED = 1, /* the kernel does not take the problem */
  BOLT_TUNING_NO_MEMORY = 2
} bolt_tuning_status;

/* `sm` is the compute capability times ten that the kernels were compiled for; `only`: they run on no other (no later
   GPU can translate them); `overlaps`: a kernel may begin before the one in front of it has ended. The functions
   write a sentence to `message` where they do not give BOLT_TUNING_DONE. */
typedef struct bolt_tuning_set {
  uint32_t version;
  uint32_t size; /* of this struct */
  const char* bundle;
  const char* target;
  int32_t sm;
  int32_t only;
  int32_t overlaps;
  int32_t problem_count;
  const bolt_tuning_problem* const* problems;
  bolt_tuning_status (*create)(const bolt_tuning_trial* trial, const bolt_tuning_prepare* prepare, void** kernel,
                               uint64_t* scratch_bytes, char* message, size_t room);
  /* Queues the kernel on the run's stream. */
  bolt_tuning_status (*run)(const bolt_tuning_trial* trial, const void* kernel, const bolt_tuning_run* run,
                            char* message, size_t room);
  void (*destroy)(const bolt_tuning_trial* trial, void* kernel);
} bolt_tuning_set;

/* The one symbol that the driver looks for. */
#define BOLT_TUNING_SYMBOL "bolt_tuning_candidates"
const bolt_tuning_set* bolt_tuning_candidates(void);

#ifdef __cplusplus
}
#endif

/* Two engines in one program: two contexts of each, four threads at once, weights swapped without a rebuild.
 *
 * usage: two_engines LIBRARY WEIGHTS OTHER_WEIGHTS LIBRARY WEIGHTS OTHER_WEIGHTS [RUNS]
 *
 * For each library and both weights: every thread's outputs must be, bit for bit, those of a first run alone, whatever the other
 * threads do; other weights must give other outputs, and the first weights the first outputs again. Prints "ok" and exits 0,
 * or says what went wrong and exits 1. Build: cc -std=c11 two_engines.c -I <bolt_engine.h's> -lpthread -ldl
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bolt_engine.h"

enum { ENGINES = 2, THREADS = 4, MAX_PORTS = 16 };

typedef struct Job {
  const bolt_engine_v1* engine;
  const bolt_model* model;
  int64_t batch;
  int runs;
  unsigned long long hash; /* of all outputs of a run */
} Job;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(const bolt_engine_v1* engine, bolt_status status, const char* what) {
  if (status != BOLT_OK) fail(what, engine->last_error());
}

/* lib<name>.so exports <name>_bolt_v1. */
static const bolt_engine_v1* load(const char* path) {
  typedef const bolt_engine_v1* (*Entry)(void);
  char symbol[256];
  const char* slash = strrchr(path, '/');
  const char* file = slash == NULL ? path : slash + 1;
  char local[4096];
  void* library;
  Entry entry;
  snprintf(local, sizeof local, "%s%s", slash == NULL ? "./" : "", path); /* without a slash dlopen searches elsewhere */
  library = dlopen(local, RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) fail(path, dlerror());
  if (strncmp(file, "lib", 3) != 0 || strlen(file) < 7) fail(path, "not named lib<name>.so");
  snprintf(symbol, sizeof symbol, "%.*s_bolt_v1", (int)(strlen(file) - 6), file + 3);
  *(void**)&entry = dlsym(library, symbol);
  if (entry == NULL) fail(path, dlerror());
  return entry();
}

static void* aligned(size_t bytes) {
  void* memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  if (memory == NULL) fail("aligned_alloc", "out of memory");
  memset(memory, 0, bytes);
  return memory;
}

/* f32 in [-1, 1); zeros in other types, which are valid in all of them. */
static void fill(const bolt_tensor* tensor, void* data) {
  unsigned state = 12345;
  size_t i;
  if (tensor->dtype != BOLT_F32) return;
  for (i = 0; i < tensor->bytes / sizeof(float); ++i) {
    state = state * 1664525u + 1013904223u;
    ((float*)data)[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
  }
}

static unsigned long long hash_of(unsigned long long hash, const void* data, size_t bytes) {
  const unsigned char* at = data;
  size_t i;
  for (i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 1099511628211ull;
  return hash;
}

static unsigned long long work(const Job* job) {
  const bolt_engine_v1* engine = job->engine;
  const void* inputs[MAX_PORTS];
  void* outputs[MAX_PORTS];
  size_t sizes[MAX_PORTS];
  bolt_context_options options = {.size = sizeof options, .batch = job->batch};
  bolt_context* context = NULL;
  unsigned long long first = 0;
  int i, run;
  if (engine->input_count > MAX_PORTS || engine->output_count > MAX_PORTS) fail(engine->name, "too many ports");
  check(engine, engine->context_create(job->model, &options, &context), "context_create");
  for (i = 0; i < engine->input_count; ++i) {
    bolt_tensor tensor;
    void* data;
    check(engine, engine->input(job->batch, i, &tensor), "input");
    data = aligned(tensor.bytes);
    fill(&tensor, data);
    inputs[i] = data;
  }
  for (i = 0; i < engine->output_count; ++i) {
    bolt_tensor tensor;
    check(engine, engine->output(job->batch, i, &tensor), "output");
    outputs[i] = aligned(sizes[i] = tensor.bytes);
  }
  for (run = 0; run < job->runs; ++run) {
    unsigned long long hash = 1469598103934665603ull;
    check(engine, engine->run(context, inputs, outputs, NULL), "run");
    for (i = 0; i < engine->output_count; ++i) hash = hash_of(hash, outputs[i], sizes[i]);
    if (run > 0 && hash != first) fail(engine->name, "two runs of one context differ");
    first = hash;
  }
  for (i = 0; i < engine->input_count; ++i) free((void*)inputs[i]);
  for (i = 0; i < engine->output_count; ++i) free(outputs[i]);
  engine->context_destroy(context);
  return first;
}

static void* thread_main(void* argument) {
  Job* job = argument;
  job->hash = work(job);
  return NULL;
}

static bolt_model* create(const bolt_engine_v1* engine, const char* weights) {
  bolt_model_options options;
  bolt_model* model = NULL;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.threads = 1;
  options.weights_path = weights;
  check(engine, engine->create(&options, &model), weights);
  return model;
}

/* Four threads, two a model; hashes[e] becomes what engine e answers. */
static void run_all(const bolt_engine_v1* const* engines, const char* const* weights, int runs, unsigned long long* hashes) {
  bolt_model* models[ENGINES];
  pthread_t threads[THREADS];
  Job jobs[THREADS];
  int i;
  for (i = 0; i < ENGINES; ++i) {
    Job alone = {engines[i], models[i] = create(engines[i], weights[i]), engines[i]->batches[0], 1, 0};
    hashes[i] = work(&alone);
  }
  for (i = 0; i < THREADS; ++i) {
    Job job = {engines[i % ENGINES], models[i % ENGINES], engines[i % ENGINES]->batches[0], runs, 0};
    jobs[i] = job;
    if (pthread_create(&threads[i], NULL, thread_main, &jobs[i]) != 0) fail("pthread_create", "failed");
  }
  for (i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], NULL);
    if (jobs[i].hash != hashes[i % ENGINES]) fail(jobs[i].engine->name, "a thread's outputs differ from those of a run alone");
  }
  for (i = 0; i < ENGINES; ++i) engines[i]->destroy(models[i]);
}

int main(int count, char** words) {
  const bolt_engine_v1* engines[ENGINES];
  const char *weights[ENGINES], *others[ENGINES];
  unsigned long long before[ENGINES], swapped[ENGINES], after[ENGINES];
  int i, runs = count > 7 ? atoi(words[7]) : 20;
  if (count < 7 || runs < 1) fail("usage", "two_engines LIBRARY WEIGHTS OTHER_WEIGHTS LIBRARY WEIGHTS OTHER_WEIGHTS [RUNS]");
  for (i = 0; i < ENGINES; ++i) {
    engines[i] = load(words[1 + 3 * i]);
    weights[i] = words[2 + 3 * i];
    others[i] = words[3 + 3 * i];
  }
  run_all(engines, weights, runs, before);
  run_all(engines, others, runs, swapped);
  run_all(engines, weights, runs, after);
  for (i = 0; i < ENGINES; ++i) {
    if (swapped[i] == before[i]) fail(engines[i]->name, "other weights give the same outputs");
    if (after[i] != before[i]) fail(engines[i]->name, "the first weights give other outputs than before");
  }
  puts("ok");
  return 0;
}

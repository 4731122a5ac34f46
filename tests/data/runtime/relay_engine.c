/* An engine by hand, for tests of the loader: sum = image + bias of the channel, copy = bias.
 * It refuses weights that do not start with "good", and fails where the first number of the image is negative. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bolt_engine.h"

struct bolt_model { int threads; };
struct bolt_context { int64_t batch; };

static int live_models, live_contexts;
static const char* error = "";
static const int64_t batches[] = {1, 4};
static bolt_engine_v1 table;

int relay_live(void) { return 100 * live_models + live_contexts; }

static bolt_status fail(bolt_status status, const char* text) {
  error = text;
  return status;
}

static const char* last_error(void) { return error; }

static bolt_tensor image(const char* name, int64_t n) {
  bolt_tensor t = {name, BOLT_F32, BOLT_CHANNELS_LAST, BOLT_CPU, 4, {n, 3, 2, 2}, (size_t)n * 48};
  return t;
}

static bolt_tensor bias(const char* name) {
  bolt_tensor t = {name, BOLT_BF16, BOLT_ROW, BOLT_CPU, 1, {3}, 6};
  return t;
}

static bolt_status describe(int64_t batch, bolt_tensor* tensor, bolt_tensor found) {
  if (batch != 1 && batch != 4) return fail(BOLT_INVALID_ARGUMENT, "no plan for this batch");
  *tensor = found;
  return BOLT_OK;
}

static bolt_status input(int64_t batch, int32_t index, bolt_tensor* tensor) {
  return describe(batch, tensor, index ? bias("bias") : image("image", batch));
}

static bolt_status output(int64_t batch, int32_t index, bolt_tensor* tensor) {
  return describe(batch, tensor, index ? bias("copy") : image("sum", batch));
}

static bolt_status create(const bolt_model_options* options, bolt_model** model) {
  char head[5] = "";
  if (options->size != sizeof *options) return fail(BOLT_INVALID_ARGUMENT, "options of another size");
  if (options->weights_path) {
    FILE* file = fopen(options->weights_path, "rb");
    if (file) {
      if (fread(head, 1, 4, file) != 4) head[0] = 0;
      fclose(file);
    }
  } else if (options->weights_bytes >= 4) {
    memcpy(head, options->weights, 4);
  }
  if (strcmp(head, "good") != 0) return fail(BOLT_BAD_WEIGHTS, "these weights are not good");
  *model = malloc(sizeof **model);
  (*model)->threads = options->threads;
  ++live_models;
  return BOLT_OK;
}

static void destroy(bolt_model* model) {
  --live_models;
  free(model);
}

static bolt_status context_create(const bolt_model* model, const bolt_context_options* options, bolt_context** context) {
  (void)model;
  if (options->sizes && *options->sizes != options->batch) return fail(BOLT_INVALID_ARGUMENT, "two batches");
  if (options->batch != 1 && options->batch != 4) return fail(BOLT_INVALID_ARGUMENT, "no plan for this batch");
  *context = malloc(sizeof **context);
  (*context)->batch = options->batch;
  ++live_contexts;
  return BOLT_OK;
}

static void context_destroy(bolt_context* context) {
  --live_contexts;
  free(context);
}

static size_t context_bytes(const bolt_context* context) { return (size_t)context->batch * 64; }

static float widen(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static bolt_status run_observed(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream,
                                bolt_observer observer, void* user) {
  const float* x = inputs[0];
  const uint16_t* b = inputs[1];
  float* y = outputs[0];
  (void)stream;
  if (x[0] < 0) return fail(BOLT_DEVICE_ERROR, "a kernel failed");
  for (int64_t i = 0; i < context->batch * 12; ++i) y[i] = x[i] + widen(b[i % 3]);
  memcpy(outputs[1], b, 6);
  if (observer) {
    bolt_step_info add = {0, "Add_0", "Add_0\nRelu_1", "relay(width=1)"}, copy = {1, "Copy_2", "", "relay"};
    bolt_tensor sum = image("sum", context->batch), unnamed = sum, twin = bias("copy");
    unnamed.name = NULL;
    observer(user, &add, &unnamed, y);
    observer(user, &add, &sum, y);
    observer(user, &copy, &twin, outputs[1]);
  }
  return BOLT_OK;
}

static bolt_status run(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream) {
  return run_observed(context, inputs, outputs, stream, NULL, NULL);
}

static bolt_status find_plan(const int64_t* sizes, int32_t* plan) {
  if (*sizes != 1 && *sizes != 4) return fail(BOLT_INVALID_ARGUMENT, "no plan for this batch");
  *plan = *sizes == 4;
  return BOLT_OK;
}

static bolt_status plan_input(int32_t plan, int32_t index, bolt_tensor* tensor) { return input(batches[plan], index, tensor); }

static bolt_status plan_output(int32_t plan, int32_t index, bolt_tensor* tensor) { return output(batches[plan], index, tensor); }

const bolt_engine_v1* relay_bolt_v1(void) {
  bolt_engine_v1 filled = {
      sizeof table, TABLE_VERSION, "relay", "host", "{\"made\": \"by hand\"}", "abcd", 2, batches, 2, 2,
      last_error, create, destroy, input, output, context_create, context_destroy, context_bytes, run, run_observed};
  filled.plan_count = 2;
  filled.sizes = batches;
  filled.find_plan = find_plan;
  filled.plan_input = plan_input;
  filled.plan_output = plan_output;
  table = filled;
  return &table;
}

// The functions behind the table of bolt_engine.h; the generated engine.cpp puts their addresses into it.
#pragma once

#include "bolt_engine.h"

namespace bolt::abi {

const char* last_error() noexcept;
bolt_status create(const bolt_model_options* options, bolt_model** model) noexcept;
void destroy(bolt_model* model) noexcept;
bolt_status input(int64_t batch, int32_t index, bolt_tensor* tensor) noexcept;
bolt_status output(int64_t batch, int32_t index, bolt_tensor* tensor) noexcept;
bolt_status context_create(const bolt_model* model, const bolt_context_options* options, bolt_context** context) noexcept;
void context_destroy(bolt_context* context) noexcept;
size_t context_bytes(const bolt_context* context) noexcept;
bolt_status run(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream) noexcept;
bolt_status run_observed(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream,
                         bolt_observer observer, void* user) noexcept;
bolt_status allocate(const bolt_model* model, size_t bytes, void** memory) noexcept;
void release(const bolt_model* model, void* memory) noexcept;
bolt_status copy(const bolt_model* model, void* to, const void* from, size_t bytes, void* stream) noexcept;
bolt_status wait(const bolt_model* model, void* stream) noexcept;
bolt_status step_count(int64_t batch, int32_t* count) noexcept;
bolt_status time_steps(bolt_context* context, const void* const* inputs, void* const* outputs, void* stream, int32_t repeats,
                       double* seconds) noexcept;
bolt_status find_plan(const int64_t* sizes, int32_t* plan) noexcept;
bolt_status plan_input(int32_t plan, int32_t index, bolt_tensor* tensor) noexcept;
bolt_status plan_output(int32_t plan, int32_t index, bolt_tensor* tensor) noexcept;
bolt_status plan_steps(int32_t plan, int32_t* count) noexcept;
bolt_status fit_plan(const int64_t* sizes, int32_t* plan) noexcept;
bolt_status run_padded(bolt_context* context, const int64_t* sizes, const void* const* inputs, void* const* outputs,
                       void* stream) noexcept;

}  // namespace bolt::abi

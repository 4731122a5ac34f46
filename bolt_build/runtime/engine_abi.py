"""ctypes mirror of `runtime/include/bolt_engine.h`, version 1. Only `runtime.loader` uses it."""

from __future__ import annotations

import ctypes as c

MAX_RANK = 8
VERSION = 1


class Tensor(c.Structure):
    """bolt_tensor."""

    _fields_ = (
        ("name", c.c_char_p),
        ("dtype", c.c_int),
        ("layout", c.c_int),
        ("where", c.c_int),
        ("rank", c.c_int32),
        ("shape", c.c_int64 * MAX_RANK),
        ("bytes", c.c_size_t),
    )


class ModelOptions(c.Structure):
    """bolt_model_options."""

    _fields_ = (
        ("size", c.c_size_t),
        ("device", c.c_int32),
        ("threads", c.c_int32),
        ("weights_path", c.c_char_p),
        ("weights", c.c_void_p),
        ("weights_bytes", c.c_size_t),
    )


class ContextOptions(c.Structure):
    """bolt_context_options."""

    _fields_ = (
        ("size", c.c_size_t),
        ("batch", c.c_int64),
        ("staged", c.c_int64),
        ("queueing", c.c_int64),
        ("sizes", c.POINTER(c.c_int64)),
    )


class StepInfo(c.Structure):
    """bolt_step_info."""

    _fields_ = (("index", c.c_int32), ("name", c.c_char_p), ("covers", c.c_char_p), ("kernel", c.c_char_p))


Observer = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(StepInfo), c.POINTER(Tensor), c.c_void_p)
Describe = c.CFUNCTYPE(c.c_int, c.c_int64, c.c_int32, c.POINTER(Tensor))
PlanDescribe = c.CFUNCTYPE(c.c_int, c.c_int32, c.c_int32, c.POINTER(Tensor))
Pointers = c.POINTER(c.c_void_p)


class EngineTable(c.Structure):
    """bolt_engine_v1."""

    _fields_ = (
        ("size", c.c_size_t),
        ("version", c.c_uint32),
        ("name", c.c_char_p),
        ("target", c.c_char_p),
        ("manifest", c.c_char_p),
        ("layout_digest", c.c_char_p),
        ("batch_count", c.c_int32),
        ("batches", c.POINTER(c.c_int64)),
        ("input_count", c.c_int32),
        ("output_count", c.c_int32),
        ("last_error", c.CFUNCTYPE(c.c_char_p)),
        ("create", c.CFUNCTYPE(c.c_int, c.POINTER(ModelOptions), c.POINTER(c.c_void_p))),
        ("destroy", c.CFUNCTYPE(None, c.c_void_p)),
        ("input", Describe),
        ("output", Describe),
        ("context_create", c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(ContextOptions), c.POINTER(c.c_void_p))),
        ("context_destroy", c.CFUNCTYPE(None, c.c_void_p)),
        ("context_bytes", c.CFUNCTYPE(c.c_size_t, c.c_void_p)),
        ("run", c.CFUNCTYPE(c.c_int, c.c_void_p, Pointers, Pointers, c.c_void_p)),
        ("run_observed", c.CFUNCTYPE(c.c_int, c.c_void_p, Pointers, Pointers, c.c_void_p, Observer, c.c_void_p)),
        ("allocate", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_size_t, c.POINTER(c.c_void_p))),
        ("release", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)),
        ("copy", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)),
        ("wait", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)),
        ("step_count", c.CFUNCTYPE(c.c_int, c.c_int64, c.POINTER(c.c_int32))),
        (
            "time_steps",
            c.CFUNCTYPE(c.c_int, c.c_void_p, Pointers, Pointers, c.c_void_p, c.c_int32, c.POINTER(c.c_double)),
        ),
        ("dim_count", c.c_int32),
        ("dims", c.POINTER(c.c_char_p)),
        ("plan_count", c.c_int32),
        ("sizes", c.POINTER(c.c_int64)),
        ("find_plan", c.CFUNCTYPE(c.c_int, c.POINTER(c.c_int64), c.POINTER(c.c_int32))),
        ("plan_input", PlanDescribe),
        ("plan_output", PlanDescribe),
        ("plan_steps", c.CFUNCTYPE(c.c_int, c.c_int32, c.POINTER(c.c_int32))),
        ("axes", c.POINTER(c.c_int8)),
        ("fit_plan", c.CFUNCTYPE(c.c_int, c.POINTER(c.c_int64), c.POINTER(c.c_int32))),
        ("run_padded", c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.c_int64), Pointers, Pointers, c.c_void_p)),
    )

"""The engine's ABI: what it refuses, in which words, and what it computes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_calls import BAD_WEIGHTS, DEVICE_ERROR, INTERNAL, INVALID_ARGUMENT, NO_DEVICE, OK, create, refused, table_of
from tiny_engine import build_engine, tiny_constants, tiny_plan, tiny_reference

from bolt_build.emit.weights import write_weights
from bolt_build.graph.ir import Array
from bolt_build.runtime import engine_abi as abi
from bolt_build.runtime.loader import Engine, EngineError, Model

X = np.random.RandomState(0).standard_normal((4, 3, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def weights(tiny_library: Path) -> Path:
    return tiny_library.with_name("tiny.weights")


@pytest.fixture
def model(tiny_library: Path, weights: Path) -> Iterator[Model]:
    with Engine(tiny_library) as engine, engine.create(weights, threads=1) as created:
        yield created


# What it computes


def test_a_run_is_the_reference(model: Model) -> None:
    with model.context(4) as context:
        assert np.array_equal(context.run({"x": X})["y"], tiny_reference(X, tiny_constants()))
    with model.context(1) as context:
        assert np.array_equal(context.run({"x": X[:1]})["y"], tiny_reference(X[:1], tiny_constants()))


def test_an_observer_sees_every_tensor_with_an_onnx_name(model: Model) -> None:
    seen: list[tuple[int, str, tuple[str, ...], str, Array]] = []
    with model.context(4) as context:
        context.run_observed(
            {"x": X}, lambda step, name, data: seen.append((step.index, step.name, step.covers, name, data))
        )
    assert [entry[:4] for entry in seen] == [
        (0, "Mul_0", ("Mul_0",), "scaled"),
        (2, "Reshape_2", ("Reshape_2",), "flat"),
        (3, "Relu_3", ("Relu_3",), "y"),
    ]
    scale, shift = tiny_constants()
    assert np.array_equal(seen[0][4], X * scale)
    assert np.array_equal(seen[1][4], (X * scale + shift).reshape(4, 15))


def test_a_staged_context_has_buffers_of_its_own(model: Model) -> None:
    y = np.empty((4, 15), np.float32)
    with model.context(4) as plain, model.context(4, staged=True) as staged:
        assert staged.nbytes - plain.nbytes == 2 * 256  # x and y are 240 bytes each, in multiples of 64
        for factor in (1, -2):
            x = (factor * X).copy()
            staged.run_on([x.ctypes.data], [y.ctypes.data])
            np.testing.assert_array_equal(y, tiny_reference(x, tiny_constants()))


@pytest.mark.parametrize("queueing", [0, 1, 2, 3])
def test_a_cpu_engine_takes_no_notice_of_how_kernels_are_queued(model: Model, queueing: int) -> None:
    with model.context(4, queueing=queueing) as context:
        np.testing.assert_array_equal(context.run({"x": X})["y"], tiny_reference(X, tiny_constants()))


@pytest.mark.parametrize("queueing", [-1, 4])
def test_other_ways_to_queue_kernels_are_refused(model: Model, queueing: int) -> None:
    with pytest.raises(EngineError) as caught:
        model.context(4, queueing=queueing)
    assert str(caught.value) == f"options->queueing is {queueing}: give 0, 1, 2 or 3 (invalid argument)"
    assert caught.value.status == INVALID_ARGUMENT


def test_every_step_has_a_time_of_its_own(model: Model) -> None:
    with model.context(4) as context:
        seconds = context.step_seconds({"x": X}, repeats=3)
        assert len(seconds) == 4
        assert all(0 <= second < 1 for second in seconds)
        np.testing.assert_array_equal(context.run({"x": X})["y"], tiny_reference(X, tiny_constants()))


def test_callers_can_have_memory_where_the_ports_live(tiny_library: Path, model: Model) -> None:
    table, made, back = table_of(tiny_library), ctypes.c_void_p(), np.zeros_like(X)
    assert table.allocate(model._handle, X.nbytes, ctypes.byref(made)) == OK
    assert table.copy(model._handle, made, X.ctypes.data, X.nbytes, None) == OK
    assert table.copy(model._handle, back.ctypes.data, made, X.nbytes, None) == OK
    assert table.wait(model._handle, None) == OK
    table.release(model._handle, made)
    np.testing.assert_array_equal(back, X)


def test_contexts_are_made_and_run_in_threads_at_once(model: Model) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.random.RandomState(seed).standard_normal(X.shape).astype(np.float32)
        for _ in range(20):
            with model.context(4) as context:
                if not np.array_equal(context.run({"x": x})["y"], tiny_reference(x, tiny_constants())):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_weights_come_from_memory_too_aligned_or_not(tiny_library: Path, weights: Path) -> None:
    data = weights.read_bytes()
    table = table_of(tiny_library)
    for shift in (0, 1):
        memory = ctypes.create_string_buffer(len(data) + 128)
        at = -(-ctypes.addressof(memory) // 64) * 64 + shift
        ctypes.memmove(at, data, len(data))
        options = abi.ModelOptions(ctypes.sizeof(abi.ModelOptions), 0, 1, None, at, len(data))
        model = ctypes.c_void_p()
        assert table.create(ctypes.byref(options), ctypes.byref(model)) == OK
        ctypes.memset(at, 0xFF, len(data))  # the memory may go once create has returned
        context = ctypes.c_void_p()
        batch = abi.ContextOptions(ctypes.sizeof(abi.ContextOptions), 4)
        assert table.context_create(model, ctypes.byref(batch), ctypes.byref(context)) == OK
        y = np.empty((4, 15), np.float32)
        inputs, outputs = (ctypes.c_void_p * 1)(X.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)
        assert table.run(context, inputs, outputs, None) == OK
        assert np.array_equal(y, tiny_reference(X, tiny_constants()))
        table.context_destroy(context)
        table.destroy(model)


def test_arena_and_scratch_are_one_allocation_of_known_size(model: Model) -> None:
    with model.context(4) as context:
        assert context.nbytes == 512 + 64  # two buffers of 240 bytes, and 5 floats of scratch, each rounded up to 64
    with model.context(1) as context:
        assert context.nbytes == 128 + 64


class Threads:
    """OpenMP's own word, in this process, on how many threads a parallel region of the calling thread gets."""

    def __init__(self) -> None:
        self.get = ctypes.CDLL("libgomp.so.1").omp_get_max_threads
        self.set = ctypes.CDLL("libgomp.so.1").omp_set_num_threads


def test_a_run_has_the_model_s_threads_and_leaves_the_caller_s(tiny_library: Path, weights: Path) -> None:
    threads = Threads()
    before = threads.get()
    threads.set(3)
    seen = set()
    with Engine(tiny_library) as engine, engine.create(weights, threads=2) as model, model.context(4) as context:
        assert threads.get() == 3
        context.run_observed({"x": X}, lambda step, name, data: seen.add(threads.get()))
    assert seen == {2}
    assert threads.get() == 3
    threads.set(before)


# What it refuses


def test_a_batch_it_lacks(model: Model) -> None:
    with pytest.raises(EngineError) as caught:
        model.context(7)
    assert str(caught.value) == "batch 7 is not one of this engine's: 1, 4 (invalid argument)"


def test_wrong_options(tiny_library: Path, weights: Path) -> None:
    path = str(weights).encode()
    assert create(tiny_library) == (
        INVALID_ARGUMENT, "no weights given: set weights_path, or weights and weights_bytes",
    )  # fmt: skip
    assert create(tiny_library, weights_path=path, weights=1, weights_bytes=1) == (
        INVALID_ARGUMENT, "both weights_path and weights are given: set one of them",
    )  # fmt: skip
    assert create(tiny_library, size=0) == (
        INVALID_ARGUMENT, "options->size is 0: set it to sizeof(bolt_model_options), 40",
    )  # fmt: skip
    assert create(tiny_library, weights_path=path, threads=-1) == (
        INVALID_ARGUMENT, "threads is -1: give 0 for as many as the process may use, or 1 to 1024",
    )  # fmt: skip
    assert create(tiny_library, weights_path=path, threads=1025)[0] == INVALID_ARGUMENT
    assert create(tiny_library, weights_path=path, device=3) == (
        NO_DEVICE, "device 3 does not exist: a CPU engine has device 0 alone",
    )  # fmt: skip
    assert create(tiny_library, weights_path=b"/nowhere/w") == (
        BAD_WEIGHTS, "cannot open weights '/nowhere/w': No such file or directory",
    )  # fmt: skip
    assert create(tiny_library, weights_path=b"/") == (BAD_WEIGHTS, "cannot read weights '/': not a regular file")


class LaterOptions(ctypes.Structure):
    """bolt_model_options of a caller that was compiled against a later ABI."""

    _fields_ = (("known", abi.ModelOptions), ("unknown", ctypes.c_int64))


def test_options_of_a_later_abi_are_taken_where_they_ask_for_nothing_new(tiny_library: Path, weights: Path) -> None:
    table = table_of(tiny_library)
    model = ctypes.c_void_p()
    known = abi.ModelOptions(ctypes.sizeof(LaterOptions), 0, 1, str(weights).encode(), None, 0)
    later = LaterOptions(known, 0)
    call = ctypes.cast(table.create, ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p))
    assert call(ctypes.addressof(later), ctypes.addressof(model)) == OK
    table.destroy(model)
    later.unknown = 1
    assert refused(table, call(ctypes.addressof(later), ctypes.addressof(model))) == (
        INVALID_ARGUMENT, "bolt_model_options sets what this engine does not know yet",
    )  # fmt: skip
    assert model.value is None


@pytest.mark.parametrize("last", ["batch", "staged", "queueing"])
def test_options_of_an_earlier_abi_are_zero_where_they_end(tiny_library: Path, weights: Path, last: str) -> None:
    """What lies behind the last field that such a caller knows is not its options."""
    table = table_of(tiny_library)
    model, context = ctypes.c_void_p(), ctypes.c_void_p()
    known = abi.ModelOptions(ctypes.sizeof(abi.ModelOptions), 0, 1, str(weights).encode(), None, 0)
    assert table.create(ctypes.byref(known), ctypes.byref(model)) == OK
    field = getattr(abi.ContextOptions, last)
    behind = ctypes.cast(ctypes.c_void_p(99), ctypes.POINTER(ctypes.c_int64))
    options = abi.ContextOptions(
        field.offset + field.size, 4, 99 if last == "batch" else 0, 0 if last == "queueing" else 99, behind
    )
    assert table.context_create(model, ctypes.byref(options), ctypes.byref(context)) == OK
    table.context_destroy(context)
    options.size = abi.ContextOptions.batch.offset
    assert refused(table, table.context_create(model, ctypes.byref(options), ctypes.byref(context))) == (
        INVALID_ARGUMENT, "options->size is 8: set it to sizeof(bolt_context_options), 40",
    )  # fmt: skip
    table.destroy(model)


def test_null_arguments(tiny_library: Path) -> None:
    table = table_of(tiny_library)
    tensor = abi.Tensor()
    invalid = INVALID_ARGUMENT
    assert refused(table, table.create(None, ctypes.byref(ctypes.c_void_p()))) == (invalid, "options is NULL")
    assert refused(table, table.create(None, None)) == (invalid, "model is NULL")
    assert refused(table, table.run(None, None, None, None)) == (invalid, "context is NULL")
    assert refused(table, table.input(1, 0, None)) == (invalid, "tensor is NULL")
    assert refused(table, table.input(1, 1, ctypes.byref(tensor))) == (invalid, "input 1 does not exist: there are 1")
    assert refused(table, table.output(2, 0, ctypes.byref(tensor))) == (
        invalid, "batch 2 is not one of this engine's: 1, 4",
    )  # fmt: skip
    assert table.context_bytes(None) == 0
    table.destroy(None)
    table.context_destroy(None)


def test_null_buffers_and_streams(tiny_library: Path, weights: Path) -> None:
    table = table_of(tiny_library)
    options = abi.ModelOptions(ctypes.sizeof(abi.ModelOptions), 0, 1, str(weights).encode(), None, 0)
    model, context = ctypes.c_void_p(), ctypes.c_void_p()
    assert table.create(ctypes.byref(options), ctypes.byref(model)) == OK
    batch = abi.ContextOptions(ctypes.sizeof(abi.ContextOptions), 1)
    assert table.context_create(model, ctypes.byref(batch), ctypes.byref(context)) == OK
    one, none = (ctypes.c_void_p * 1)(ctypes.addressof(model)), (ctypes.c_void_p * 1)(None)
    invalid = INVALID_ARGUMENT
    assert refused(table, table.run(context, None, one, None)) == (invalid, "inputs is NULL")
    assert refused(table, table.run(context, none, one, None)) == (invalid, "input 0 ('x') is NULL")
    assert refused(table, table.run(context, one, none, None)) == (invalid, "output 0 ('y') is NULL")
    assert refused(table, table.run(context, one, one, 8)) == (
        invalid, "stream is not NULL: a CPU engine has no streams",
    )  # fmt: skip
    table.context_destroy(context)
    table.destroy(model)


def test_an_error_is_the_thread_s_own_and_goes_with_its_next_call(tiny_library: Path) -> None:
    table = table_of(tiny_library)
    tensor = abi.Tensor()
    assert table.input(2, 0, ctypes.byref(tensor)) == INVALID_ARGUMENT
    others: list[bytes] = []
    thread = threading.Thread(target=lambda: others.append(table.last_error()))
    thread.start()
    thread.join()
    assert others == [b""]
    assert table.last_error() != b""
    assert table.input(1, 0, ctypes.byref(tensor)) == OK
    assert table.last_error() == b""


def test_a_failed_run_names_its_step_and_sticks_to_the_context(model: Model) -> None:
    bad = X.copy()
    bad[0, 0, 0] = np.nan
    with model.context(4) as context:
        with pytest.raises(EngineError) as caught:
            context.run({"x": bad})
        assert caught.value.status == DEVICE_ERROR
        assert str(caught.value).startswith("step 0 'Mul_0' of batch 4 failed: the input is not a number")
        with pytest.raises(EngineError, match="an earlier run of this context failed: destroy it and make another"):
            context.run({"x": X})
    with model.context(4) as context:
        context.run({"x": X})


def test_a_kernel_that_cannot_be_prepared_is_named(tiny_library: Path, tmp_path: Path) -> None:
    scale, shift = tiny_constants()
    scale[0] = np.nan
    write_weights(tmp_path / "w", tiny_plan(), (scale, shift))
    assert create(tiny_library, weights_path=str(tmp_path / "w").encode()) == (
        INTERNAL, "preparing step 0 'Mul_0' of batch 1 failed: the scale is not a number",
    )  # fmt: skip


def test_memory_that_cannot_be_counted_is_refused(tmp_path: Path) -> None:
    """Rounded up, or with scratch and ports behind it, such an arena is beyond what pointers can count."""
    tiny = tiny_plan()
    arenas = {1: 2**63 - 1, 4: 2**63 - 128}
    plans = tuple(replace(plan, arena_bytes=arenas[plan.batch]) for plan in tiny.plans)
    library = build_engine(tmp_path, replace(tiny, plans=plans), tiny_constants())
    said = "out of memory: more than 63 bits can count is needed"
    with Engine(library) as engine, engine.create(tmp_path / "tiny.weights", threads=1) as created:
        for batch, staged in ((1, False), (1, True), (4, True)):
            with pytest.raises(EngineError) as raised:
                created.context(batch, staged=staged)
            assert str(raised.value) == said

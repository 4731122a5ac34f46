"""Runs a built engine from Python.

    with Engine("libresnet50.so") as engine, engine.create("resnet50.weights") as model:
        with model.context(batch=1) as context:
            outputs = context.run({"input": image})

Arrays are always logical and row-major (NCHW for images), whatever layout the engine wants: ports and taps that lie
channels-last are transposed here, and where ports live in a device's memory, arrays are copied there and back. The GIL
is released while the engine works, so threads with a context each run at the same time. A call that the engine refuses
raises `EngineError`; arguments that do not fit raise `ValueError`.
"""

from __future__ import annotations

import ctypes
import json
import os
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from bolt_build.runtime import engine_abi as abi
from bolt_build.runtime import names
from bolt_build.runtime.closing import Closing
from bolt_build.runtime.device_memory import DeviceMemory, addressed, pointers
from bolt_build.runtime.engine_tensors import (
    Array,
    StepInfo,
    TensorSpec,
    spec_of,
    step_of,
    stored_inputs,
    text_of,
    whole,
)
from bolt_build.runtime.shorter import Shorter
from bolt_build.sizes import Sizes

__all__ = ["Context", "Engine", "EngineError", "Model", "Observer", "StepInfo", "TensorSpec"]

_STATUS = (
    "ok", "invalid argument", "bad weights", "out of memory", "no device", "device error", "internal error",
)  # fmt: skip


_NONE: Mapping[str, int] = MappingProxyType({})


class EngineError(RuntimeError):
    """The engine refused or failed: `status` is its bolt_status, the text what its last_error() said."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        kind = _STATUS[status] if 0 <= status < len(_STATUS) else f"status {status}"
        super().__init__(message if kind in message else f"{message} ({kind})" if message else kind)


Observer = Callable[[StepInfo, str, Array], None]
"""Called with the step, the ONNX name of the tensor it made, and a copy of it (logical, row-major)."""


class Engine(Closing):
    """An engine's library. Closing it closes its models; the library itself stays loaded until the process ends.

    Raises ValueError where `library` is no engine of ABI version 1, and OSError where it cannot be loaded.
    """

    def __init__(self, library: str | os.PathLike[str]) -> None:
        self.library = Path(library).resolve()
        handle = ctypes.CDLL(str(self.library))
        symbol = names.symbol(self.library.name.removeprefix("lib").removesuffix(".so"))
        try:
            entry = handle[symbol]
        except AttributeError:
            raise ValueError(f"{self.library} is not an engine: it exports no '{symbol}'") from None
        entry.restype = ctypes.POINTER(abi.EngineTable)
        entry.argtypes = ()
        self._table = entry().contents
        if self._table.version != abi.VERSION or self._table.size < ctypes.sizeof(abi.EngineTable):
            raise ValueError(
                f"{self.library} has ABI version {self._table.version} with a table of {self._table.size} bytes;"
                f" this loader knows version {abi.VERSION} with {ctypes.sizeof(abi.EngineTable)}"
            )
        self.name = text_of(self._table.name)
        self.target = text_of(self._table.target)
        self.layout_digest = text_of(self._table.layout_digest)
        self.batches = tuple(int(self._table.batches[i]) for i in range(self._table.batch_count))
        self.dims = tuple(text_of(self._table.dims[i]) for i in range(self._table.dim_count))
        self.sizes = tuple(self._sizes(plan) for plan in range(self._table.plan_count))
        self._models: weakref.WeakSet[Model] = weakref.WeakSet()

    @property
    def manifest(self) -> dict[str, Any]:
        """What the engine was built from, as it says itself."""
        found: dict[str, Any] = json.loads(text_of(self._table.manifest))
        return found

    def inputs(self, batch: int, dims: Mapping[str, int] = _NONE) -> tuple[TensorSpec, ...]:
        """Ports in the engine's order. `dims` has the extent of each dimension of which the engine has several. Raises
        EngineError for a batch or extents that it was not built for, ValueError for dimensions that it does not have.
        """
        plan = self.plan(batch, dims)
        return tuple(self._port(self._table.plan_input, plan, index) for index in range(self._table.input_count))

    def outputs(self, batch: int, dims: Mapping[str, int] = _NONE) -> tuple[TensorSpec, ...]:
        """The same of the outputs."""
        plan = self.plan(batch, dims)
        return tuple(self._port(self._table.plan_output, plan, index) for index in range(self._table.output_count))

    def plan(self, batch: int, dims: Mapping[str, int] = _NONE) -> int:
        """Which of `sizes` is this batch with these extents. Raises as `inputs` does."""
        found = ctypes.c_int32()
        self.check(self._table.find_plan(self._numbers(batch, dims), ctypes.byref(found)))
        return found.value

    def create(self, weights: str | os.PathLike[str] | bytes, threads: int = 0, device: int = 0) -> Model:
        """A model with weights from a file (its path) or from memory (bytes); `threads` 0 takes as many as the process
        may use."""
        model = Model(self, weights, threads, device)
        self._models.add(model)
        return model

    def close(self) -> None:
        for model in list(self._models):
            model.close()

    def check(self, status: int) -> None:
        """Raises EngineError, with what the engine has to say, unless `status` is BOLT_OK."""
        if status != 0:
            raise EngineError(status, text_of(self._table.last_error()))

    def _sizes(self, plan: int) -> Sizes:
        first = plan * (1 + len(self.dims))
        batch, *extents = (int(self._table.sizes[first + i]) for i in range(1 + len(self.dims)))
        return Sizes(batch, tuple(zip(self.dims, extents, strict=True)))

    def fitting(self, batch: int, dims: Mapping[str, int] = _NONE) -> Sizes:
        """The sizes of the plan that a padded context for this batch and these extents has: the least that they fit
        into. Raises as `inputs` does."""
        found = ctypes.c_int32()
        self.check(self._table.fit_plan(self._numbers(batch, dims), ctypes.byref(found)))
        return self.sizes[found.value]

    def follows(self, port: int) -> tuple[int, ...]:
        """For each axis of a port (inputs, then outputs) which of `Sizes.numbers` it follows, -1 for none; empty where
        the engine pads nothing."""
        if not self._table.axes:
            return ()
        first = port * abi.MAX_RANK
        return tuple(self._table.axes[first : first + abi.MAX_RANK])

    def _built(self) -> str:
        """For example "sequence 64, 128 or 384"."""
        texts = []
        for place, name in enumerate(self.dims):
            *first, last = sorted({each.dims[place][1] for each in self.sizes})
            texts.append(f"{name} {', '.join(map(str, first))} or {last}" if first else f"{name} {last}")
        return "; ".join(texts)

    def _numbers(self, batch: int, dims: Mapping[str, int]) -> Any:
        """A batch and extents as the ABI takes them. Raises ValueError, and TypeError where `dims` is no mapping."""
        if not isinstance(dims, Mapping):
            raise TypeError(
                f"dims is of type {type(dims).__name__}, wanted a mapping: extents by the names of dimensions"
            )
        if set(dims) != set(self.dims):
            said = ", ".join(f"{name} {extent}" for name, extent in dims.items()) or "no extents"
            takes = f"it takes {self._built()}" if self.dims else "none of its dimensions has several extents"
            raise ValueError(f"{self.name} was given {said}; {takes}")
        extents = (whole(f"the extent of {name}", dims[name], 64) for name in self.dims)
        return (ctypes.c_int64 * (1 + len(self.dims)))(whole("the batch", batch, 64), *extents)

    def _port(self, describe: Any, plan: int, index: int) -> TensorSpec:
        tensor = abi.Tensor()
        self.check(describe(plan, index, ctypes.byref(tensor)))
        return spec_of(tensor)


class Model(Closing):
    """Weights and prepared kernels, shared by any number of threads. Closing it closes its contexts first."""

    def __init__(self, engine: Engine, weights: str | os.PathLike[str] | bytes, threads: int, device: int) -> None:
        self.engine = engine
        self._contexts: weakref.WeakSet[Context] = weakref.WeakSet()
        self._handle = ctypes.c_void_p()
        options = abi.ModelOptions(size=ctypes.sizeof(abi.ModelOptions))
        options.device, options.threads = whole("device", device, 32), whole("threads", threads, 32)
        if isinstance(weights, bytes):
            options.weights = ctypes.cast(ctypes.c_char_p(weights), ctypes.c_void_p)
            options.weights_bytes = len(weights)
        else:
            options.weights_path = os.fsencode(weights)
        engine.check(engine._table.create(ctypes.byref(options), ctypes.byref(self._handle)))

    def context(
        self,
        batch: int | None = None,
        staged: bool = False,
        *,
        queueing: int = 0,
        dims: Mapping[str, int] = _NONE,
        padded: bool = False,
    ) -> Context:
        """A context for one of the engine's batches, which an engine of one batch need not be told; one a thread.
        `staged`: with buffers of its own for the ports. `queueing`: flags of the ABI's `bolt_queueing`, 0 for what
        is fastest. `dims`: the extent of each dimension of which the engine has several. `padded`: for the least plan
        that batch and extents fit into; its runs take what is smaller than that plan too, pad it with zeros, and cut
        outputs back. It has buffers of its own."""
        if batch is None:
            batch, *others = self.engine.batches
            if others:
                raise ValueError(f"{self.engine.name} has several batches: give one of {self.engine.batches}")
        if padded:
            sizes = self.engine.fitting(batch, dims)
            batch, dims, staged = sizes.batch, dict(sizes.dims), True
        context = Context(self, batch, staged, queueing, dims, padded)
        self._contexts.add(context)
        return context

    def wait(self, stream: int | None = None) -> None:
        """Returns once all that `stream` (a cudaStream_t as a number) has queued is done. Raises EngineError."""
        self.engine.check(self.engine._table.wait(self._handle, stream))

    def close(self) -> None:
        for context in list(self._contexts):
            context.close()
        if self._handle.value:
            self.engine._table.destroy(self._handle)
            self._handle = ctypes.c_void_p()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()


class Context(Closing):
    """The working memory of one plan. Holds its model alive."""

    def __init__(
        self, model: Model, batch: int, staged: bool, queueing: int, dims: Mapping[str, int], padded: bool
    ) -> None:
        if not model._handle.value:
            raise ValueError("the model is closed")
        self.model = model
        self.batch = batch
        self._table = model.engine._table
        self._handle = ctypes.c_void_p()
        options = abi.ContextOptions(
            size=ctypes.sizeof(abi.ContextOptions), batch=batch, staged=staged, queueing=queueing,
            sizes=model.engine._numbers(batch, dims),
        )  # fmt: skip
        model.engine.check(self._table.context_create(model._handle, ctypes.byref(options), ctypes.byref(self._handle)))
        self._plan = model.engine.plan(batch, dims)
        self.sizes = model.engine.sizes[self._plan]
        self._padded = padded
        self.inputs = model.engine.inputs(batch, dims)
        self.outputs = model.engine.outputs(batch, dims)
        self._device: list[DeviceMemory] = []
        if any(port.where != "cpu" for port in (*self.inputs, *self.outputs)):
            memory = partial(DeviceMemory, self._table, model._handle, model.engine.check)
            self._device = [memory(port.nbytes) for port in (*self.inputs, *self.outputs)]

    @property
    def nbytes(self) -> int:
        """Bytes of arena and scratch that the context holds."""
        return int(self._table.context_bytes(self._open()))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Inputs must have the ports' logical shapes and element types exactly; where the context is
        padded, they may be shorter along axes that are padded, all by the same (ValueError)."""
        handle = self._open()
        if self._padded:
            return self._run_padded(handle, inputs)
        stored = stored_inputs(self.model.engine.name, self.inputs, inputs)
        results = self._results()
        given, made = self._copied_in(stored, results)
        self.model.engine.check(self._table.run(handle, given, made, None))
        self._copy_out(results)
        return self._logical(results)

    def _run_padded(self, handle: ctypes.c_void_p, inputs: Mapping[str, Array]) -> dict[str, Array]:
        engine = self.model.engine
        shorter = Shorter(
            self.inputs, self.outputs, tuple(map(engine.follows, range(len(self.inputs) + len(self.outputs))))
        )
        numbers = shorter.numbers(inputs, self.sizes)
        ports, made = shorter.resized(numbers)
        stored = stored_inputs(engine.name, ports, inputs)
        results = [np.empty(port.stored_shape, port.numpy_dtype) for port in made]
        sizes = (ctypes.c_int64 * len(numbers))(*numbers)
        # A staged context copies from and to memory of the CPU itself.
        engine.check(self._table.run_padded(handle, sizes, pointers(stored), pointers(results), None))
        self.model.wait()
        return {port.name: port.to_logical(array) for port, array in zip(made, results, strict=True)}

    def run_on(self, inputs: Sequence[int], outputs: Sequence[int], stream: int | None = None) -> None:
        """Runs on buffers at these addresses, in the ports' order, where the ports live; on a device it only queues the
        run on `stream` (a cudaStream_t as a number). The caller keeps the buffers until it is done."""
        handle = self._open()
        if len(inputs) != len(self.inputs) or len(outputs) != len(self.outputs):
            raise ValueError(f"wanted {len(self.inputs)} inputs and {len(self.outputs)} outputs")
        self.model.engine.check(self._table.run(handle, addressed(inputs), addressed(outputs), stream))

    def run_observed(
        self, inputs: Mapping[str, Array], observer: Observer, only: Container[str] | None = None
    ) -> dict[str, Array]:
        """The same, step by step, `observer` called for each tensor that is one of the ONNX model (and in `only`).

        What the observer raises ends the observing and is raised here once the run is over.
        """
        handle = self._open()
        stored = stored_inputs(self.model.engine.name, self.inputs, inputs)
        results = self._results()
        raised: list[BaseException] = []

        def observe(_user: object, step: Any, tensor: Any, data: int | None) -> None:
            name = text_of(tensor.contents.name)
            if raised or not name or data is None or (only is not None and name not in only):
                return
            try:
                observer(step_of(step.contents), name, self._seen(spec_of(tensor.contents), data))
            except BaseException as error:  # carried over the C frames, which no exception may cross
                raised.append(error)

        callback = abi.Observer(observe)
        given, made = self._copied_in(stored, results)
        status = self._table.run_observed(handle, given, made, None, callback, None)
        if raised:
            raise raised[0]
        self.model.engine.check(status)
        self._copy_out(results)
        return self._logical(results)

    def step_seconds(self, inputs: Mapping[str, Array], repeats: int = 20) -> tuple[float, ...]:
        """Seconds that each step takes by itself, the mean of `repeats` executions one after the other."""
        handle = self._open()
        stored = stored_inputs(self.model.engine.name, self.inputs, inputs)
        results = self._results()
        count = ctypes.c_int32()
        self.model.engine.check(self._table.plan_steps(self._plan, ctypes.byref(count)))
        seconds = (ctypes.c_double * max(1, count.value))()
        given, made = self._copied_in(stored, results)
        self.model.engine.check(self._table.time_steps(handle, given, made, None, repeats, seconds))
        return tuple(seconds[: count.value])

    def close(self) -> None:
        if self._handle.value:
            self._table.context_destroy(self._handle)
            self._handle = ctypes.c_void_p()
            for memory in self._device:
                memory.close()

    def __del__(self) -> None:
        if hasattr(self, "_device"):
            self.close()

    def _copied_in(self, stored: list[Array], results: list[Array]) -> tuple[Any, Any]:
        """Pointers to what a run reads and writes: the arrays themselves, or buffers of the device with the inputs."""
        if not self._device:
            return pointers(stored), pointers(results)
        for memory, array in zip(self._device, stored, strict=False):
            memory.fill(array)
        addresses = [memory.address for memory in self._device]
        return addressed(addresses[: len(stored)]), addressed(addresses[len(stored) :])

    def _copy_out(self, results: list[Array]) -> None:
        for memory, array in zip(self._device[len(self.inputs) :], results, strict=bool(self._device)):
            memory.read(array)

    def _seen(self, spec: TensorSpec, data: int) -> Array:
        """The tensor at address `data`, copied: the memory is the engine's and soon holds something else."""
        stored = np.empty(spec.stored_shape, spec.numpy_dtype)
        if spec.where == "cpu":
            ctypes.memmove(stored.ctypes.data, data, spec.nbytes)
        else:
            engine = self.model.engine
            engine.check(self._table.copy(self.model._handle, stored.ctypes.data, data, spec.nbytes, None))
        return spec.to_logical(stored)

    def _open(self) -> ctypes.c_void_p:
        if not self._handle.value:
            raise ValueError("the context is closed")
        return self._handle

    def _results(self) -> list[Array]:
        return [np.empty(port.stored_shape, port.numpy_dtype) for port in self.outputs]

    def _logical(self, results: list[Array]) -> dict[str, Array]:
        return {port.name: port.to_logical(array) for port, array in zip(self.outputs, results, strict=True)}

"""The engine itself, through its library as any program would run it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import bolt_build
from bolt_build.bench.contestant import Contestant, Setup
from bolt_build.bench.device import Device
from bolt_build.graph.ir import Array
from bolt_build.runtime.loader import Engine


class EnginePeer:
    name = "engine"

    def version(self, where: str) -> str:
        return f"bolt-build {bolt_build.__version__}"

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        return LoadedEngine(setup, feeds, device)


class LoadedEngine:
    """`queueing` has flags of the ABI's `bolt_queueing`. Raises EngineError, OSError or ValueError where the engine
    cannot be loaded or run."""

    compile_seconds: float | None = None

    def __init__(self, setup: Setup, feeds: Mapping[str, Array], device: Device, queueing: int = 0) -> None:
        self._engine = Engine(Path(setup.library))
        self._model = self._engine.create(Path(setup.weights), threads=setup.threads)
        self._context = self._model.context(setup.batch, queueing=queueing, dims=dict(setup.chosen))
        self.precision = setup.precision
        ports = self._context.inputs
        self.form = ", ".join(dict.fromkeys(f"{port.dtype.value} {port.layout.value}" for port in ports))
        self.stream = device.new_stream()
        self._inputs = [device.buffer(port.nbytes) for port in ports]
        self._outputs = [device.buffer(port.nbytes) for port in self._context.outputs]
        for port, buffer in zip(ports, self._inputs, strict=True):
            buffer.fill(port.to_stored(feeds[port.name].astype(port.numpy_dtype)))
        self._addresses = tuple([buffer.address for buffer in some] for some in (self._inputs, self._outputs))

    def run(self) -> None:
        self._context.run_on(self._addresses[0], self._addresses[1], self.stream or None)

    def settle(self) -> None:
        """Nothing: an engine holds what it runs with."""

    def outputs(self) -> dict[str, Array]:
        return {
            port.name: _plain(port.to_logical(buffer.read(port.stored_shape, port.numpy_dtype)))
            for port, buffer in zip(self._context.outputs, self._outputs, strict=True)
        }


def _plain(array: Array) -> Array:
    """16-bit floating-point elements as f32."""
    return array if array.dtype.kind in "iub" or array.dtype == np.float64 else array.astype(np.float32)

"""A peer for `bolt-build bench --against numpy`: the operators' own definitions, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bolt_build.bench.contestant import Contestant, PeerFailed, Setup
from bolt_build.bench.device import Device
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate


class NumpyModel:
    """The model for one batch, its inputs in memory."""

    precision = "fp32"
    form = "f32 row"
    compile_seconds: float | None = None
    stream = 0

    def __init__(self, setup: Setup, feeds: Mapping[str, Array]) -> None:
        self._graph = load_model(setup.model_path).bind(setup.batch, setup.dims)
        self._feeds = dict(feeds)
        self._made: dict[str, Array] = {}

    def run(self) -> None:
        self._made = evaluate(self._graph, self._feeds)

    def settle(self) -> None:
        """Nothing: it keeps what it has."""

    def outputs(self) -> dict[str, Array]:
        return {name: np.asarray(self._made[name]) for name in self._graph.outputs}


class NumpyPeer:
    name = "numpy"

    def version(self, where: str) -> str:
        if where != "cpu":
            raise PeerFailed("computes on CPUs alone")
        return f"numpy {np.__version__}"

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        return NumpyModel(setup, feeds)


NUMPY = NumpyPeer()

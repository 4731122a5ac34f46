"""The model as PyTorch users run it, in the engine's precision: what every peer made of torch has in common."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from bolt_build.bench.contestant import PeerFailed, PeerMissing, Setup
from bolt_build.graph.ir import Array, Graph

if TYPE_CHECKING:
    # PyTorch is no requirement, and takes seconds to import.
    import torch

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_FORMS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}


def torch_version(where: str) -> str:
    """Raises PeerMissing where torch, or a GPU that it can use, is not there."""
    try:
        found: Any = importlib.import_module("torch")
    except ImportError as error:
        raise PeerMissing(f"torch cannot be imported ({error})", "pip install torch") from None
    if where == "cuda" and not found.cuda.is_available():
        hint = "install a torch that is built for CUDA"
        raise PeerMissing(f"torch {found.__version__} finds no GPU that it can use", hint)
    return f"torch {found.__version__}"


ModuleOf = Callable[[Setup, Graph], "torch.nn.Module"]
"""Gives the module that a setup asks for, beside its model as a graph. Raises PeerFailed."""


def graph_module(setup: Setup, graph: Graph) -> torch.nn.Module:
    """The ONNX model itself as a module. Raises PeerFailed where torch has no layer for a node."""
    # It imports PyTorch.
    from bolt_build.bench.torch_graph import Unsupported, torch_module

    try:
        return torch_module(graph)
    except Unsupported as error:
        raise PeerFailed(str(error)) from error


class TorchModel:
    """A module and its inputs, weights and images in channels-last order, on the device; nothing is run yet.

    `module_of` gives another module for the same inputs and outputs than the ONNX model's own nodes.
    """

    compile_seconds: float | None = None
    stream = 0

    def __init__(self, setup: Setup, feeds: Mapping[str, Array], module_of: ModuleOf = graph_module) -> None:
        # PyTorch is no requirement, and takes seconds to import; all operators take a fifth of one, for every peer.
        import torch

        from bolt_build.graph.onnx_import import load_model

        self._torch = torch
        if setup.threads:
            torch.set_num_threads(setup.threads)
        torch.backends.cudnn.benchmark = True
        self._device = "cuda" if setup.where == "cuda" else "cpu"
        self._dtype: torch.dtype = getattr(torch, _DTYPES[setup.precision])
        graph = load_model(setup.model_path).bind(setup.batch, setup.dims)
        module = module_of(setup, graph)
        self.module = module.to(device=self._device, dtype=self._dtype)
        for each in (*self.module.parameters(), *self.module.buffers()):
            each.data = self._ordered(each.data)
        self.inputs = [self._placed(feeds[name]) for name in graph.inputs]
        self.precision = setup.precision
        image = any(given.dim() == 4 for given in self.inputs)
        self.form = f"{_FORMS[setup.precision]} {'channels_last' if image else 'row'}"
        self._names = graph.outputs
        self._without_gradients: Callable[[], AbstractContextManager[object]] = torch.inference_mode
        self._call: Callable[[], tuple[torch.Tensor, ...]] = lambda: self.module(*self.inputs)
        self._made: tuple[torch.Tensor, ...] = ()

    def use(
        self,
        call: Callable[[], tuple[torch.Tensor, ...]],
        without_gradients: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Run the model so from now on; what `call` gives stays as it is until the next call."""
        self._call, self._without_gradients = call, without_gradients

    def run(self) -> None:
        self._made = ()  # its memory may be used again
        with self._without_gradients():
            self._made = self._call()

    def settle(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()
            self._torch.cuda.empty_cache()

    def outputs(self) -> dict[str, Array]:
        held = zip(self._names, self._made, strict=True)
        plain = ((name, made.float() if made.is_floating_point() else made) for name, made in held)
        return {
            name: made.to("cpu", memory_format=self._torch.contiguous_format).numpy().copy() for name, made in plain
        }

    def _placed(self, array: Array) -> torch.Tensor:
        given = self._torch.from_numpy(array).to(device=self._device)
        return self._ordered(given.to(self._dtype) if given.is_floating_point() else given)

    def _ordered(self, given: torch.Tensor) -> torch.Tensor:
        """Channels last where it is an image or a filter; `Module.to` would refuse what has five axes."""
        return given.contiguous(memory_format=self._torch.channels_last) if given.dim() == 4 else given

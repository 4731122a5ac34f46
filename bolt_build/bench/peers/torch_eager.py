"""PyTorch without a compiler: eager, and its kernels replayed from a CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping

from bolt_build.bench.contestant import Contestant, PeerFailed, Setup
from bolt_build.bench.device import Device
from bolt_build.bench.peers.torch_model import ModuleOf, TorchModel, graph_module, torch_version
from bolt_build.graph.ir import Array

_BEFORE_CAPTURE = 5


class TorchPeer:
    name = "torch"

    def version(self, where: str) -> str:
        return torch_version(where)

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        return TorchModel(setup, feeds)


class TorchGraphPeer:
    name = "torch-graph"

    def version(self, where: str) -> str:
        if where != "cuda":
            raise PeerFailed("CUDA graphs are for GPUs")
        return torch_version(where)

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        return TorchGraph(setup, feeds)


class TorchGraph(TorchModel):
    """One capture of an eager run; each run replays it on the same memory."""

    def __init__(self, setup: Setup, feeds: Mapping[str, Array], module_of: ModuleOf = graph_module) -> None:
        # PyTorch is no requirement, and takes seconds to import.
        import torch

        super().__init__(setup, feeds, module_of)
        with torch.inference_mode():
            beside = torch.cuda.Stream()
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                for _ in range(_BEFORE_CAPTURE):
                    self.module(*self.inputs)
            torch.cuda.current_stream().wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made = self.module(*self.inputs)

        def replay() -> tuple[torch.Tensor, ...]:
            graph.replay()
            return tuple(made)

        self.use(replay, torch.inference_mode)

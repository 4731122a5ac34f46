"""torch.compile with frozen weights: the best that PyTorch makes of a model, and what it makes in less time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from bolt_build.bench.contestant import Contestant, Setup
from bolt_build.bench.device import Device
from bolt_build.bench.peers.torch_model import ModuleOf, TorchModel, graph_module, torch_version
from bolt_build.graph.ir import Array


class TorchCompilePeer:
    """In `mode`, one of torch.compile's."""

    def __init__(self, name: str = "torch-compile", mode: str = "max-autotune") -> None:
        self.name, self._mode = name, mode

    def version(self, where: str) -> str:
        return torch_version(where)

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        return TorchCompiled(setup, feeds, device, self._mode)


class TorchCompiled(TorchModel):
    """Compiles with the first run, which `compile_seconds` is the time of: nothing compiled before is used again."""

    def __init__(
        self, setup: Setup, feeds: Mapping[str, Array], device: Device, mode: str,
        module_of: ModuleOf = graph_module, *, freezing: bool = True,
    ) -> None:  # fmt: skip
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(setup.inputs).with_name("torchinductor"))
        # PyTorch is no requirement, and takes seconds to import.
        import torch

        # PyTorch is no requirement, and takes seconds to import.
        import torch._inductor.config as inductor

        super().__init__(setup, feeds, module_of)
        inductor.freezing = freezing
        compiled = torch.compile(self.module, mode=mode)
        # Freezing asks for no_grad: inference mode would hide from it that weights do not change.
        self.use(lambda: tuple(compiled(*self.inputs)), torch.no_grad)
        begun = time.monotonic()
        self.run()
        device.wait()
        self.compile_seconds = time.monotonic() - begun

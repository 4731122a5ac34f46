"""Peers for `bolt-build bench`: the module that `export_torch.py` exported, as its package runs it, with the same
weights. Attention is the package's default.

Each peer is offered as an installed package would (`untuned_networks.py` has the entry points).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from benchmarks.exporters.export_torch import made
from benchmarks.peers.published_encoders import One, Published
from benchmarks.peers.untuned_networks import NAME
from bolt_build.bench.contestant import Contestant, PeerFailed, Setup
from bolt_build.bench.device import Device
from bolt_build.bench.peers.torch_compile import TorchCompiled
from bolt_build.bench.peers.torch_eager import TorchGraph
from bolt_build.bench.peers.torch_model import TorchModel
from bolt_build.graph.ir import Array, Graph


def source_module(setup: Setup, graph: Graph) -> torch.nn.Module:
    """The exported module. Raises PeerFailed where nothing says which it is."""
    named = Path(setup.model).with_suffix(f".{NAME}")
    if not named.is_file():
        raise PeerFailed(f"no {named.name} lies beside {Path(setup.model).name}")
    return One(made(named.read_text().strip())[0], lambda found: found)


def _compiled(setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
    return TorchCompiled(setup, feeds, device, "reduce-overhead", source_module)


EAGER = Published("source", lambda setup, feeds, device: TorchModel(setup, feeds, source_module))
GRAPH = Published("source-graph", lambda setup, feeds, device: TorchGraph(setup, feeds, source_module))
FROZEN = Published("source-frozen", _compiled)

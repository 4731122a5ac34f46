"""Peers for `bolt-build bench`: the encoders of the zoo as transformers and torchvision have them, with the weights of
the ONNX file.

Each peer is offered as an installed package would (`encoder_peers.py` has the entry points). Attention
is the library's default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from bolt_build.bench.contestant import Contestant, PeerFailed, Setup
from bolt_build.bench.device import Device
from bolt_build.bench.peers.torch_compile import TorchCompiled
from bolt_build.bench.peers.torch_eager import TorchGraph
from bolt_build.bench.peers.torch_model import TorchModel, torch_version
from bolt_build.graph.ir import Array, Graph


class One(torch.nn.Module):
    """A model whose result is the one tensor that `pick` takes of what it returns."""

    def __init__(self, inner: torch.nn.Module, pick: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.inner, self._pick = inner, pick

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self._pick(self.inner(x)),)


def _bert(layers: int, hidden: int, heads: int, inner: int) -> torch.nn.Module:
    import transformers

    config = transformers.BertConfig(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=inner
    )
    return One(transformers.BertModel(config, add_pooling_layer=False), lambda found: found[0])


def _distilbert() -> torch.nn.Module:
    import transformers

    return One(transformers.DistilBertModel(transformers.DistilBertConfig()), lambda found: found[0])


def _vit() -> torch.nn.Module:
    import torchvision

    return One(torchvision.models.vit_b_16(weights=None), lambda found: found)


def _clip() -> torch.nn.Module:
    import transformers

    model = transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(projection_dim=512))
    return One(model, lambda found: found.image_embeds)


def _whisper() -> torch.nn.Module:
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, num_mel_bins=80
    )
    return One(WhisperEncoder(config), lambda found: found[0])


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "bert_base": lambda: _bert(12, 768, 12, 3072),
    "bert_large": lambda: _bert(24, 1024, 16, 4096),
    "distilbert": _distilbert,
    "vit_b16": _vit,
    "clip_vision": _clip,
    "whisper_tiny_encoder": _whisper,
}
"""By the name of the ONNX file's graph."""


def published(setup: Setup, graph: Graph) -> torch.nn.Module:
    """The published model with the weights of the ONNX file. Raises PeerFailed where they do not fit."""
    file = onnx.load(setup.model)
    make = MODELS.get(file.graph.name)
    if make is None:
        raise PeerFailed(f"no published model is known for '{file.graph.name}'")
    module = make().eval()
    assert isinstance(module, One)
    weights = _weights(file)
    with torch.no_grad():
        for name, parameter in module.inner.named_parameters():
            found = weights.pop(name.replace("in_proj_", "in_proj."), None)
            if found is None or found.size != parameter.numel():
                raise PeerFailed(f"the model's '{name}' {list(parameter.shape)} is no weight of the ONNX file")
            parameter.copy_(torch.from_numpy(np.array(found, np.float32, order="C")).reshape(parameter.shape))
    if weights:
        raise PeerFailed(f"the published model has no '{next(iter(weights))}'")
    return module


def _weights(file: onnx.ModelProto) -> dict[str, Array]:
    """Initializers by name, as torch's layers hold them: [out, in] where a MatMul reads [in, out]."""
    turned = {node.input[1] for node in file.graph.node if node.op_type == "MatMul"}
    arrays = {item.name: numpy_helper.to_array(item) for item in file.graph.initializer}
    return {name.lstrip("."): array.T if name in turned else array for name, array in arrays.items()}


class Published:
    """A peer: `start` gets the published model ready in one way."""

    def __init__(self, name: str, start: Callable[[Setup, Mapping[str, Array], Device], Contestant]) -> None:
        self.name, self._start = name, start

    def version(self, where: str) -> str:
        return torch_version(where)

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        return self._start(setup, feeds, device)


def _compiled(freezing: bool) -> Callable[[Setup, Mapping[str, Array], Device], Contestant]:
    def start(setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        return TorchCompiled(setup, feeds, device, "reduce-overhead", published, freezing=freezing)

    return start


EAGER = Published("published", lambda setup, feeds, device: TorchModel(setup, feeds, published))
GRAPH = Published("published-graph", lambda setup, feeds, device: TorchGraph(setup, feeds, published))
COMPILED = Published("published-compiled", _compiled(freezing=False))
FROZEN = Published("published-frozen", _compiled(freezing=True))

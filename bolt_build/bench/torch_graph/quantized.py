"""Numbers on steps: as PyTorch runs a model of quantise and dequantise operators in floating point. Its products of
integers are not for all devices, and have no counterpart here."""

from __future__ import annotations

import torch
from torch import fx

from bolt_build.bench.torch_graph.builder import Builder, Lower, dtype_of
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.quantised.quantize import Dequantize, Quantize, limits


def quantize(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Quantize)
    x, scale, zero = map(build.value, node.inputs)
    steps = build.call(torch.add, build.call(torch.round, build.call(torch.div, x, scale)), zero)
    return build.call(torch.Tensor.to, build.call(torch.clamp, steps, *limits(op.to)), dtype_of(op.to))


def dequantize(build: Builder, node: Node) -> fx.Node:
    assert isinstance(node.op, Dequantize)
    x, scale, zero = map(build.value, node.inputs)
    apart = build.call(torch.sub, build.as_floating(x), zero)
    return build.call(torch.mul, apart, scale)


QUANTIZED: dict[type[Op], Lower] = {Quantize: quantize, Dequantize: dequantize}

"""What torch modules made of graphs compute, and what they call. It imports torch, which tests need not have."""

from __future__ import annotations

import torch

from bolt_build.bench.torch_graph import torch_module
from bolt_build.bench.torch_graph.builder import tensor_of
from bolt_build.graph.ir import Array, Graph


def compute(graph: Graph, inputs: dict[str, Array]) -> list[Array]:
    """The module's outputs; floating-point inputs are given in f32, others as they are."""
    given = [tensor_of(inputs[name]) for name in graph.inputs]
    with torch.inference_mode():
        return [made.numpy() for made in torch_module(graph)(*given)]


def called(graph: Graph) -> list[str]:
    """Functions and layers of the module, by name, but for reshapes."""
    module = torch_module(graph)
    nodes = [each for each in module.graph.nodes if each.op.startswith("call")]
    layers = dict(module.named_modules())
    names = [type(layers[each.target]).__name__ if each.op == "call_module" else each.target.__name__ for each in nodes]
    return [name for name in names if name != "reshape"]

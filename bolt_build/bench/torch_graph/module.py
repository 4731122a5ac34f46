"""From `Graph` to `torch.fx.GraphModule`: straight-line code, as if the model had been written in torch."""

from __future__ import annotations

from collections import Counter

from torch import fx, nn

from bolt_build.bench.torch_graph.attention import ATTENTION
from bolt_build.bench.torch_graph.builder import Builder, Lower, Unsupported, dtype_of
from bolt_build.bench.torch_graph.elementwise import ELEMENTWISE
from bolt_build.bench.torch_graph.indexing import INDEXING
from bolt_build.bench.torch_graph.layers import LAYERS
from bolt_build.bench.torch_graph.lines import LINES
from bolt_build.bench.torch_graph.logic import LOGIC
from bolt_build.bench.torch_graph.moves import MOVES
from bolt_build.bench.torch_graph.norms import NORMS
from bolt_build.bench.torch_graph.quantized import QUANTIZED
from bolt_build.bench.torch_graph.recurrent import RECURRENT
from bolt_build.bench.torch_graph.sampling import SAMPLING
from bolt_build.bench.torch_graph.windows import WINDOWS
from bolt_build.graph.ir import Graph, Op

__all__ = ["Unsupported", "torch_module"]

_LOWER: dict[type[Op], Lower] = {
    **LAYERS, **NORMS, **ELEMENTWISE, **LOGIC, **MOVES, **INDEXING, **LINES, **WINDOWS, **SAMPLING, **ATTENTION,
    **RECURRENT, **QUANTIZED,
}  # fmt: skip


def torch_module(graph: Graph) -> nn.Module:
    """A module that takes the graph's inputs in their order and gives a tuple of its outputs, for this batch alone.

    Weights are f32 until they are cast; all floating-point data is meant to be of one element type, so that casts
    between such types in the graph do nothing. Raises Unsupported, whose text names everything of the graph that has no
    counterpart: kinds of operators with the first node of each, and forms of others that torch does not have.
    """
    build = Builder(graph)
    for name in graph.inputs:
        build.take(name)
    lacking: Counter[str] = Counter()
    for node in graph.nodes:
        lower = _LOWER.get(type(node.op))
        try:
            for name in (*node.inputs, *node.outputs):
                if not graph.type(name).dtype.is_float:
                    dtype_of(graph.type(name).dtype)
            if lower is None or node.epilogue:
                first = next(each.name for each in graph.nodes if type(each.op) is type(node.op))
                raise Unsupported(f"operator '{node.op.kind}' of '{first}' has no counterpart in torch here")
            build.made[node.outputs[0]] = lower(build, node)
        except Unsupported as error:
            lacking[str(error)] += 1
            build.take(node.outputs[0])  # so that what follows is looked at too
    if lacking:
        raise Unsupported("; ".join(f"{text} ({n} times)" if n > 1 else text for text, n in lacking.items()))
    build.code.output(tuple(build.value(name) for name in graph.outputs))
    module = fx.GraphModule(build.root, build.code)
    module.graph.eliminate_dead_code()  # products that a recurrent layer of torch's does itself
    module.delete_all_unused_submodules()
    module.recompile()
    return module.eval().requires_grad_(False)

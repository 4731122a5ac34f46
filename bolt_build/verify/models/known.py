"""What of a model is the same for all inputs of the same shapes.

Exporters compute extents, masks and indices of the shapes of activations, in thousands of nodes. All of that is
constant once the shapes are known, and need not be computed again for every layer that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from onnx import AttributeProto, GraphProto, ModelProto, ValueInfoProto

_READS = ("Shape", "Size")


def shape_reads(model: ModelProto) -> tuple[str, ...]:
    """The names of the tensors that hold shapes, or parts of them."""
    own = (node for node in model.graph.node if node.op_type in _READS and node.domain in ("", "ai.onnx"))
    return tuple(name for node in own for name in node.output if name)


def giving(model: ModelProto, names: tuple[str, ...]) -> ModelProto:
    """A model whose outputs are the tensors `names`, of the same inputs. External data stays where it is."""
    changed = ModelProto()
    changed.CopyFrom(model)
    del changed.graph.output[:]
    changed.graph.output.extend(ValueInfoProto(name=name) for name in names)
    return changed


def made_of_constants(graph: GraphProto, constants: Iterable[str]) -> Set[str]:
    """The tensors that nodes make of `constants` alone, or of nothing. Those with graphs of their own do not count."""
    fixed, made = {"", *constants}, set[str]()
    for node in graph.node:
        outputs = set(filter(None, node.output))
        steady = fixed.issuperset(node.input) and not any(map(_has_graphs, node.attribute))
        if steady and fixed.isdisjoint(outputs):
            made |= outputs
            fixed |= outputs
    return made


def _has_graphs(attribute: AttributeProto) -> bool:
    return attribute.HasField("g") or bool(attribute.graphs)

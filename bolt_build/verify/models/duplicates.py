"""Which tensors of a model are the same: what equal nodes make of equal inputs.

An engine computes such a tensor once. Where it shows one of them, the others need not be computed again from what is
further in front.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, NodeProto, TensorProto

_MOST_BYTES = 4096
"""Of a constant that is compared by its contents."""
_DRAWS = (
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
"""Operators that give something else each time."""


def first_of(graph: GraphProto) -> Mapping[str, str]:
    """Of each tensor that is the same as an earlier one, the first of these."""
    first: dict[str, str] = {}
    seen: dict[object, tuple[str, ...]] = {}
    for constant in graph.initializer:
        key = _contents(constant)
        if key is not None:
            first[constant.name] = seen.setdefault(key, (constant.name,))[0]
    for node in graph.node:
        key = _key(node, first)
        if key is not None:
            outputs = tuple(node.output)
            first.update(
                (name, same) for name, same in zip(outputs, seen.setdefault(key, outputs), strict=True) if name
            )
    return {name: same for name, same in first.items() if name != same}


def _key(node: NodeProto, first: Mapping[str, str]) -> object:
    """Equal for nodes that give the same; None where that cannot be said."""
    if node.op_type in _DRAWS or any(a.HasField("g") or a.graphs or a.ByteSize() > _MOST_BYTES for a in node.attribute):
        return None
    attributes = tuple(sorted((a.name, a.SerializeToString(deterministic=True)) for a in node.attribute))
    filled = tuple(bool(name) for name in node.output)
    return node.domain, node.op_type, tuple(first.get(name, name) for name in node.input), attributes, filled


def _contents(constant: TensorProto) -> object:
    if constant.external_data or constant.ByteSize() > _MOST_BYTES:
        return None
    plain = TensorProto()
    plain.CopyFrom(constant)
    plain.ClearField("name")
    return plain.SerializeToString(deterministic=True)

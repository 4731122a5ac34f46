"""A model with noise on what integers select: that of one whose inputs are integers alone, which cannot be changed by
a little themselves."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto, helper

_REAL = TensorProto.FLOAT
_MOVES = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""What may stand between rows of integers and the node that makes real numbers of them."""
_QUANTISED = (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16)
"""Types of inputs that stand for real numbers: images and what quantised layers leave."""
_SCALES = {"QLinearConcat": 0, "QLinearWhere": 2}
"""Which input of an operator of quantised tensors is the first scale, where it is not the second one."""


def stirred(model: ModelProto, size: float, seed: int) -> ModelProto | None:
    """The model with each row that data take of a constant table in fp32 changed, element by element, by a random part
    of itself: `size` in root mean square. So are the real numbers that quantised inputs stand for, or their scales
    where a node makes other integers of these. None where it has none of them."""
    changed = ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    types = {each.name: each.data_type for each in graph.initializer}
    taken: dict[str, int] = {}
    """What data took of constants, by element type."""
    given = {each.name for each in graph.input if each.type.tensor_type.elem_type in _QUANTISED}.difference(types)
    nodes: list[NodeProto] = []
    renamed: dict[str, str] = {}
    scales = 0
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        if _is_quantised(node) and not given.isdisjoint(node.input):
            at = _SCALES.get(node.op_type, 1)
            scales += 1
            changed_scale = f"{node.output[0]}/scale/stirred"
            nodes += _noise(node.input[at], changed_scale, size, seed + scales)
            node.input[at] = changed_scale
        nodes.append(node)
        if node.op_type in _MOVES and node.input[0] in given:
            given.add(node.output[0])
        if node.op_type == "DequantizeLinear" and node.input[0] in given:
            taken[node.input[0]] = TensorProto.UINT8
        kind = _taken(node, types, taken)
        if kind is None:
            _note_constant(node, types)
        elif kind == _REAL:
            output = node.output[0]
            renamed[output] = f"{output}/stirred"
            nodes += _noise(output, renamed[output], size, seed + len(renamed))
        else:
            taken[node.output[0]] = kind
    if not renamed and not scales:
        return None
    del graph.node[:]
    graph.node.extend(nodes)
    return changed


def _is_quantised(node: NodeProto) -> bool:
    """True of operators whose results are integers with a scale, as their operands are."""
    return node.op_type.startswith("QLinear") or node.op_type == "QGemm"


def _taken(node: NodeProto, types: dict[str, int], taken: dict[str, int]) -> int | None:
    """The element type of rows that data take of a constant, or of real numbers made of such; None of other nodes."""
    if node.op_type == "Gather" and node.input[0] in types and node.input[1] not in types:
        return types[node.input[0]]
    if node.op_type == "DequantizeLinear" and node.input[0] in taken:
        return types.get(node.input[1])
    if node.op_type in _MOVES:
        return taken.get(node.input[0])
    if node.op_type.startswith("QLinear"):  # integers of integers: the first that becomes real numbers is changed
        return next((taken[name] for name in node.input if name in taken), None)
    return None


def _note_constant(node: NodeProto, types: dict[str, int]) -> None:
    """Notes what follows from constants alone and is of a known type."""
    if node.op_type == "Constant":
        types.update((node.output[0], each.t.data_type) for each in node.attribute if each.name == "value")
    elif node.op_type in ("DequantizeLinear", "Identity") and node.input[0] in types:
        of = types.get(node.input[1 if node.op_type == "DequantizeLinear" else 0])
        if of is not None:
            types[node.output[0]] = of


def _noise(name: str, to: str, size: float, seed: int) -> list[NodeProto]:
    """`to` is `name`, each element times 1 and a random number of the root mean square `size`."""
    factor = f"{to}/factor"
    return [
        helper.make_node("RandomNormalLike", [name], [factor], mean=1.0, scale=size, seed=float(seed)),
        helper.make_node("Mul", [name, factor], [to]),
    ]

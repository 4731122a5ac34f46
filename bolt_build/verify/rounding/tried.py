"""What rounding does to a layer, tried: the layer once more, with everything rounded that an engine may round.

The variance of `verify.rounding` is a bound. Over many layers that nothing shows in between, such as blocks whose
channels are padded or shuffled, it may exceed the tensor itself: each window counts the errors of neighbouring
positions as one. Then the difference that roundings make on the engine's own inputs says what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from onnx import NodeProto, TensorProto, helper

from bolt_build.dtypes import DType
from bolt_build.verify.emitter import Emitter
from bolt_build.verify.rounding.rounding import UNIT, Variance
from bolt_build.verify.rounding.rounding_rules import RULES, is_exact

_FACTOR = 2.0**2
"""An engine may be off by twice what one trial shows: both are draws of the same roundings, which the trial makes at
every node and an engine where it stores."""
_USUAL = 4.0
"""The largest of normal differences over their root mean square. What decides, as attention that is torn between two
keys does, moves few elements far: others than in the trial, and as far."""
_SMALL = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "Mul", "Div", "BatchNormalization")
"""Products and scales."""
_HALF = {DType.F16: TensorProto.FLOAT16, DType.BF16: TensorProto.BFLOAT16}


def tried(
    emit: Emitter, nodes: Sequence[NodeProto], real: Set[str], tensor: str, rank: int, computed: DType,
    floors: Mapping[str, Callable[[], str]],
) -> Variance:  # fmt: skip
    """The mean square, over all but the channels, of what roundings to `computed` do to `tensor` of this rank, which
    `nodes` of the graph make, or a part of the largest. Names that are `real` hold floating-point numbers. None where
    it cannot be tried: a node is neither one of those whose roundings are known nor one that only moves, or nothing is
    rounded.

    Weights are rounded as the model has them. Where an engine may have folded constants into them, what products and
    scales leave is off by its `floors` besides (`small_weights`): all up, as the error of one weight may be, and
    in another trial each further from 0, where sums of what goes up alike would cancel it.
    """
    if computed not in _HALF or emit.opset < 13 or not all(map(_is_known, nodes)):
        return None
    ways = (None, "Sign") if floors else (None,)
    found = [_trial(emit, nodes, real, tensor, rank, _HALF[computed], floors, way) for way in ways]
    most = [each for each in found if each is not None]
    return None if not most else emit.add("Max", most) if len(most) > 1 else most[0]


def _trial(
    emit: Emitter, nodes: Sequence[NodeProto], real: Set[str], tensor: str, rank: int, half: int,
    floors: Mapping[str, Callable[[], str]], way: str | None,
) -> Variance:  # fmt: skip
    def rounded(name: str) -> str:
        return emit.add("Cast", [emit.add("Cast", [name], to=half)], to=TensorProto.FLOAT)

    def off(name: str, result: str) -> str:
        most = emit.scaled(emit.add("Sqrt", [floors[name]()]), UNIT)
        return emit.sum(result, most if way is None else emit.product(emit.add(way, [result]), most))

    seen: dict[str, str] = {}
    for node in nodes:
        for name in node.input:
            if name in real and name not in seen:
                seen[name] = rounded(name)
        if not any(name in seen for name in node.input):
            continue
        made = [emit.fresh() if name else "" for name in node.output]
        copy = helper.make_node(node.op_type, [seen.get(name, name) for name in node.input], made)
        copy.attribute.extend(node.attribute)
        emit.nodes.append(copy)
        for name, result in zip(node.output, made, strict=True):
            if name in real:
                seen[name] = result if is_exact(node) else rounded(result)
                if name in floors and node.op_type in _SMALL:
                    seen[name] = off(name, seen[name])
    if tensor not in seen:
        return None
    difference = emit.scaled(emit.add("Sub", [seen[tensor], tensor]), 1.0 / UNIT)
    axes = [axis for axis in range(rank) if axis != 1 or rank < 4]
    squares = emit.scaled(emit.square(difference), _FACTOR)
    mean, most = emit.reduce("ReduceMean", squares, axes), emit.reduce("ReduceMax", squares, axes)
    return emit.add("Max", [mean, emit.scaled(most, 1.0 / _USUAL**2)])


def _is_known(node: NodeProto) -> bool:
    """True of ONNX's own operators whose roundings are known: of other domains' the name alone says nothing."""
    return node.domain in ("", "ai.onnx") and (node.op_type in RULES or is_exact(node))

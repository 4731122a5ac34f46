"""Which inputs of a model decide what its control flow does, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bolt_build.graph.importing import OnnxNode
from bolt_build.graph.onnx_model.onnx_findings import listed

_SHAPES = ("Shape", "Size")
UNROLL = "export the model traced, with its branches taken and its loops unrolled"
_FEW = 8
"""Numbers of an input that may be given values: more are data."""
_BIND = "give all dimensions their extents first (model.dims): shapes may decide what it does"


def remedy(undecided: Iterable[OnnxNode], nodes: Iterable[OnnxNode], inputs: Mapping[str, int], *, bound: bool) -> str:
    """What helps where data seem to decide what `undecided` do. `nodes` are all of the model, those inside others too,
    and `inputs` are its inputs, with how many numbers each has (0: data). `bound`: all of their extents are known."""
    makers = {name: node for node in nodes for name in node.outputs if name}
    by_data, by_shape = _deciders([node.inputs[0] for node in undecided if node.inputs], makers, inputs)
    if by_shape and not bound:
        return _BIND
    return _given(by_data, inputs) or UNROLL


def given_value(wanted: Iterable[str], nodes: Iterable[OnnxNode], inputs: Mapping[str, int]) -> str | None:
    """What helps where the values `wanted` must be constants and follow from inputs of a few numbers, such as how large
    an image is. None where they follow from others."""
    makers = {name: node for node in nodes for name in node.outputs if name}
    return _given(_deciders(wanted, makers, inputs)[0], inputs)


def _given(by_data: Mapping[str, None], inputs: Mapping[str, int]) -> str | None:
    if not by_data or any(not 0 < inputs[name] <= _FEW for name in by_data):
        return None
    what = "input" if len(by_data) == 1 else "inputs"
    one = "it a value" if len(by_data) == 1 else "each a value"
    decides = f"{listed(list(by_data))} {'decides' if len(by_data) == 1 else 'decide'}"
    return f"{what} {decides}: give {one} in the recipe, as model.fixed: {{{next(iter(by_data))}: VALUE}}"


def _deciders(
    wanted: Iterable[str], makers: Mapping[str, OnnxNode], inputs: Mapping[str, int]
) -> tuple[dict[str, None], bool]:
    """The inputs from whose data `wanted` follow, and whether shapes of some do."""
    by_data: dict[str, None] = {}
    by_shape, waiting, met = False, list(wanted), set[str]()
    while waiting:
        name = waiting.pop()
        if name in met:
            continue
        met.add(name)
        node = makers.get(name)
        if name in inputs:
            by_data[name] = None
        elif node is not None and node.op_type in _SHAPES:
            by_shape = True
        elif node is not None:
            waiting += [each for each in node.inputs if each]
            waiting += [each for branch in node.branches for each in branch.outputs]
    return by_data, by_shape

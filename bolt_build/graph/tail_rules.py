"""What operators have in common in saying what they do with a padded part (`Op.tails`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bolt_build.graph.ir import Node, ShapeError
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tail, Tails


def broadcast_tails(node: Node, at: Padded) -> dict[int, list[Tail]]:
    """Of each tail of the result, what each of the inputs, which broadcast to it, has there."""
    shape = at.shape(node.outputs[0])

    def places(name: str) -> dict[int, Tail]:
        lead = len(shape) - len(at.shape(name))
        return {at.moved(name, s, shape, at.axis(name, s) + lead): tail for s, tail in at.tails(name).items()}

    found = [places(name) for name in node.inputs]
    steps = dict.fromkeys(step for each in found for step in each)
    plain = [Tail(at.uniform(name)) for name in node.inputs]
    return {step: [each.get(step, plain[i]) for i, each in enumerate(found)] for step in steps}


def elementwise(node: Node, at: Padded, partly: Callable[[Sequence[Tail]], Tail] = lambda tails: ANYTHING) -> Tails:
    """Of an operator on elements in the same place: what it makes of numbers where each input has one behind its real
    part, and what `partly` says of the inputs' tails elsewhere."""
    kinds = [at.kind(name) for name in node.inputs]
    found = broadcast_tails(node, at)
    return {step: _computed(node, tails, kinds) or partly(tails) for step, tails in found.items()}


def _computed(node: Node, tails: Sequence[Tail], kinds: Sequence[np.dtype[np.generic]]) -> Tail | None:
    """What the operator makes of numbers; None where an input has none."""
    values = [tail.value for tail in tails if tail.value is not None]
    if len(values) < len(tails):
        return None
    arrays = [np.asarray(value).astype(kind) for value, kind in zip(values, kinds, strict=True)]
    try:
        with np.errstate(all="ignore"):
            result = float(node.op.evaluate(arrays)[0])
    except ShapeError:
        return ANYTHING
    return Tail(result)


def image_by_image(node: Node, at: Padded, apart: Sequence[int] = ()) -> Tails:
    """Of an operator that computes each image of input 0 by itself, and positions of the axes `apart`: padding may be
    images, or such positions."""
    name, shape, found = node.inputs[0], at.shape(node.outputs[0]), dict[int, Tail]()
    for step in at.tails(name):
        axis = at.axis(name, step)
        if axis and axis not in apart:
            raise PaddingReaches("mixes neighbours along it")
        found[at.moved(name, step, shape, axis)] = ANYTHING
    if any(at.tails(other) for other in node.inputs[1:]):
        raise PaddingReaches("mixes neighbours along it")
    return found

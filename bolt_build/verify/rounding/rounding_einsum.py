"""What rounding does to an Einsum: for a sum of products, the same equation over squares."""

from __future__ import annotations

from bolt_build.verify.rounding import small_weights
from bolt_build.verify.rounding.rounding import Variance, Work, additions


def einsum(work: Work) -> Variance:
    """Each product has an operand's error times the others, and rounds as the sum that it is added to."""
    emit = work.emit
    squares = [emit.square(name) for name in work.inputs]
    count = _count(work)
    share = emit.sum(additions(work, count)[0], emit.constant(sum(map(work.weight, range(len(work.inputs))))))
    spread: Variance = work.again([emit.product(squares[0], share), *squares[1:]])
    for index, variance in enumerate(work.variances):
        if variance is not None:
            spread = work.plus(spread, work.again([*squares[:index], variance, *squares[index + 1 :]]))
    return work.summed(work.plus(spread, small_weights.of_einsum(work)), count)


def _count(work: Work) -> str:
    """How many products an element of the result adds: the extents of the letters that it lacks."""
    emit = work.emit
    equation = next(each.s.decode() for each in work.node.attribute if each.name == "equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    kept = set(right) if arrow else {letter for letter in left if left.count(letter) == 1}
    count = emit.constant(1.0)
    seen: set[str] = set()
    for name, term in zip(work.inputs, left.split(","), strict=True):
        before, _, after = term.partition("...")
        places = [*enumerate(before), *((at - len(after), letter) for at, letter in enumerate(after))]
        for axis, letter in places:
            if letter not in kept and letter not in seen:
                seen.add(letter)
                count = emit.product(count, emit.extent(name, axis))
    return count

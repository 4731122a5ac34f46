"""Runs of steps that compute alike: what each reads from outside, and the state in front of the first."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bolt_build.graph.ir import Node
from bolt_build.planner.passes.recognise.scan_steps import FEWEST, Body, Ref, Steps, key_of, operands_of
from bolt_build.planner.passes.recognise.scan_terms import Unlike
from bolt_build.planner.rewrite import GraphEditor

_OTHERS = 3
"""First steps that may compute other functions, as those of a state of several earlier steps do."""


@dataclass(frozen=True)
class End:
    """What is read of the steps `first` to `last`: `values`, one a step. They are concatenated by `node` from its input
    `place` on, the last step first where `backward`; or the last one alone is read, which `node` computes."""

    node: Node
    values: tuple[str, ...]
    first: int
    place: int = -1
    backward: bool = False

    @property
    def last(self) -> int:
        return self.first + len(self.values) - 1


@dataclass(frozen=True)
class Chain:
    """Steps `first` to `last` that compute alike. Leaves have a value for each, states one in front of the first."""

    body: Body
    first: int
    last: int
    leaves: tuple[tuple[str, ...], ...]
    begun: tuple[str, ...]
    carried: tuple[Ref, ...]
    shifted: tuple[tuple[int, int, str], ...] = ()
    """Leaves that are states too, each with the leaf that it was in the step in front, and what it is in the first."""


def chain_of(steps: Steps, end: End) -> Chain:
    """The longest run of steps up to the last that compute alike. Raises Unlike."""
    for skipped in range(_OTHERS + 1):
        lead = end.first + 1 + skipped
        if end.last - lead < FEWEST - 2:
            break
        bodies = _bodies(steps, end, lead)
        whole = bodies[lead]
        if not whole.slots:
            raise Unlike("no step reads the one in front of it")
        if all(body.follows(whole) and len(body.slots) <= len(whole.slots) for body in bodies.values()):
            return _begun(steps, end, bodies, lead)
    raise Unlike("steps compute other functions")


def _bodies(steps: Steps, end: End, lead: int) -> dict[int, Body]:
    """Bodies of the steps from `lead` on. What the step behind one reads of it is computed there too; so the last ones
    know less of what they leave. Raises Unlike."""
    bodies = {step: Body() for step in range(lead, end.last + 1)}
    for step, body in bodies.items():
        steps.walk(body, step, end.values[step - end.first])
    slot = 0
    while slot < len(bodies[lead].slots):
        read = [step for step in range(lead, end.last) if len(bodies[step + 1].slots) > slot]
        if read != list(range(lead, lead + len(read))):
            raise Unlike("steps compute other functions")
        if len(read) < FEWEST - 2:
            raise Unlike("has more states than steps that are alike")
        for step in read:
            steps.walk(bodies[step], step, bodies[step + 1].slots[slot])
        slot += 1
    return bodies


def _begun(steps: Steps, end: End, bodies: dict[int, Body], lead: int) -> Chain:
    """Begins with the first step that computes alike, of those in front of the lead too: what it reads of earlier ones
    is what the first states are."""
    whole = bodies[lead]
    slots = len(whole.slots)
    rows = [bodies[step].leaves for step in range(lead, end.last + 1)]
    first, begun = lead, tuple(whole.slots)
    while first > end.first:
        before = _before(steps, whole, (end.values[first - 1 - end.first], *begun))
        if before is None:
            break
        rows.insert(0, before[0])
        first, begun = first - 1, before[1]
    # the last steps read less where what they leave is read by none
    columns = [tuple(row[place] for row in rows if len(row) > place) for place in range(len(whole.leaves))]
    shifted = []
    for place, column in enumerate(columns):
        if len(set(column)) == 1 or all(value in steps.cuts for value in column):
            continue
        others = (at for at, other in enumerate(columns) if at != place and column[1:] == other[: len(column) - 1])
        behind = next(others, -1)
        if behind >= 0:
            shifted.append((place, behind, column[0]))
    return Chain(whole, first, end.last, tuple(columns), begun, tuple(whole.roots[1 : 1 + slots]), tuple(shifted))


def _before(steps: Steps, body: Body, values: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]] | None:
    """Leaves and states of which a step in front of the body's computes these values as the body computes its roots."""
    editor = steps.editor
    leaves: dict[int, str] = {}
    slots: dict[int, str] = {}
    waiting = list(zip(body.roots, values, strict=True))
    seen: dict[Ref, str] = {}
    while waiting:
        ref, value = waiting.pop()
        if seen.setdefault(ref, value) != value and not _both_zero(editor, seen[ref], value):
            return None
        kind, at = ref
        if kind == "leaf":
            leaves[at] = value
        elif kind == "slot":
            slots[at] = value
        else:
            node = editor.producer(value)
            op, refs = body.terms[at]
            if node is None or node.epilogue or key_of(node.op) != op or value in steps.cuts:
                return None
            waiting += zip(refs, operands_of(node), strict=True)
    if len(slots) < len(body.slots):
        return None
    for at, value in slots.items():
        if prod(editor.type(value).shape) > prod(editor.type(body.slots[at]).shape):
            return None
    return [leaves[at] for at in range(len(body.leaves))], tuple(slots[at] for at in range(len(body.slots)))


def _both_zero(editor: GraphEditor, a: str, b: str) -> bool:
    """Whether both are constants of zeros of one shape, as each place in a model has its own of: no weights."""
    first, second = editor.constant(a), editor.constant(b)
    if first is None or second is None or first.shape != second.shape:
        return False
    return not first.any() and not second.any()

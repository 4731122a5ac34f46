"""If, Loop, Scan and SequenceMap, where shapes and constants decide: the branch that is taken, and the body as often as
it runs. Engines have no control flow: where data decide an If, both branches are computed, and one is chosen.

`Undecided` says that data decide. A loop's turns count as nodes of the model, and are limited as these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Protocol

import numpy as np

from bolt_build.graph.graph_builder import GraphBuilder
from bolt_build.graph.importing import DATA_DECIDE, Branch, NodeImport, OnnxNode, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.limits import MOST_ENTRIES
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice

CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")
_OLDEST_SCAN = 9
"""Before, a Scan's inputs had a batch."""
TURNS_DECIDED = "trace the model with its loops unrolled, or bind what decides (model.dims)"
"""What helps where a loop's turns follow from data, unless these are inputs of a few numbers."""


class Undecided(Exception):
    """Data decide what a node with graphs inside it does."""


class Run(Protocol):
    """What of an import of a model a node with graphs inside it needs."""

    builder: GraphBuilder

    def is_lost(self, name: str) -> bool: ...

    def lose(self, node: OnnxNode) -> None: ...

    def define(self, branch: Branch) -> dict[str, str]: ...

    def place(
        self, node: OnnxNode, branch: Branch, given: Mapping[str, str], prefix: str, wanted: Sequence[str] = ()
    ) -> tuple[str, ...]: ...

    def give(self, node: OnnxNode, results: Sequence[str]) -> None: ...

    def is_used(self, name: str) -> bool: ...


def unrolled(run: Run, node: OnnxNode) -> None:
    """Imports what the node does. Raises Undecided, Refusal and ShapeError."""
    if node.op_type == "If":
        _if(run, node)
    elif node.op_type == "Loop":
        _loop(run, node)
    elif node.op_type == "Scan" and node.since_version >= _OLDEST_SCAN:
        _scan(run, node)
    elif node.op_type == "SequenceMap":
        _sequence_map(run, node)
    else:
        raise Undecided


def _if(run: Run, node: OnnxNode) -> None:
    condition = _constant(run, node.inputs[0] if node.inputs else "")
    if condition is None:
        _either(run, node)
        return
    if condition.size != 1:
        raise Undecided
    branch = node.branches[0 if condition.reshape(-1)[0] else 1]
    if len(branch.outputs) < len(node.outputs):
        message = f"a branch has {len(branch.outputs)} outputs where {len(node.outputs)} are used"
        raise Refusal("invalid-node", message)
    run.give(node, run.place(node, branch, {}, node.name, node.outputs))


def _either(run: Run, node: OnnxNode) -> None:
    """Both branches, and of each result the one that the condition says. Raises Undecided where one cannot be had."""
    asked = node.inputs[0] if node.inputs else ""
    if asked not in run.builder.values or run.builder.values[asked].type.elements != 1:
        raise Undecided
    sides = [
        run.place(node, branch, {}, f"{node.name}/{name}")
        for name, branch in zip(("then", "else"), node.branches, strict=True)
    ]
    if any(len(side) < len(node.outputs) for side in sides):
        raise Refusal("invalid-node", f"a branch has fewer outputs than the {len(node.outputs)} that are used")
    ask = NodeImport(node, run.builder)
    condition = ask.emit(Reshape(()), [asked])
    for index, (output, *pair) in enumerate(zip(node.outputs, *sides, strict=False)):
        if not output:
            continue
        if any(map(run.is_lost, pair)):
            raise Undecided
        if any(name not in run.builder.values for name in pair):
            raise Undecided
        then, other = (ask.type_of(name) for name in pair)
        if then != other:
            kinds = " or ".join(f"{each.dtype.value} {list(each.shape)}" for each in (then, other))
            message = f"data decide whether '{output}' is {kinds}: shapes are static"
            raise Refusal("unsupported-op", message, DATA_DECIDE)
        ask.emit(Where(), [condition, *pair], index)


def _loop(run: Run, node: OnnxNode) -> None:
    """What is carried goes from turn to turn; what each turn gives beside is joined along a new first axis."""
    (body,) = node.branches
    inputs = (*node.inputs, "", "")[: max(2, len(node.inputs))]
    carried, going = list(inputs[2:]), _condition(run, inputs[1], "whether it begins")
    if len(body.inputs) != len(carried) + 2 or len(body.outputs) < len(carried) + 1:
        raise Refusal("invalid-node", f"its body has {len(body.inputs)} inputs where {len(carried) + 2} are given")
    turns = _turns(run, inputs[0])
    constants = run.define(body)
    scans: list[list[str]] = [[] for _ in body.outputs[len(carried) + 1 :]]
    for turn in turns:
        if not going:
            break
        told = np.asarray(turn, np.int64), np.asarray(going, np.bool_)
        shaped = [
            each.reshape(-1) if name in body.rows else each for name, each in zip(body.inputs, told, strict=False)
        ]
        number, holds = (_number(run, node, each, what) for each, what in zip(shaped, ("turn", "going"), strict=True))
        given = constants | dict(zip(body.inputs, (number, holds, *carried), strict=True))
        results = run.place(node, body, given, f"{node.name}/{turn}")
        if any(map(run.is_lost, results)):
            run.lose(node)
            return
        going = _condition(run, results[0], "whether it goes on")
        carried = list(results[1 : len(carried) + 1])
        for scan, result in zip(scans, results[len(carried) + 1 :], strict=True):
            scan.append(result)
    run.give(node, _all(run, node, carried, scans))


def _turns(run: Run, name: str) -> Iterator[int]:
    """The numbers of turns: up to a constant, or without an end where none is given. Raises Refusal."""
    if not name:
        return count()
    most = _constant(run, name)
    if most is None or most.size != 1:
        message = f"how often its body runs ('{name}') depends on data; engines have no control flow"
        raise Refusal("unsupported-op", message, TURNS_DECIDED)
    return iter(range(int(most.reshape(-1)[0])))


def _condition(run: Run, name: str, what: str) -> bool:
    """A constant condition, true where none is given. Raises Refusal."""
    if not name:
        return True
    holds = _constant(run, name)
    if holds is None or holds.size != 1:
        message = f"{what} ('{name}') depends on data; engines have no control flow"
        raise Refusal("unsupported-op", message, TURNS_DECIDED)
    return bool(holds.reshape(-1)[0])


def _all(run: Run, node: OnnxNode, carried: Sequence[str], scans: Sequence[Sequence[str]]) -> list[str]:
    """What is carried, and what turns gave beside, each joined along a new first axis."""
    found = list(carried)
    for index, scan in enumerate(scans, len(carried)):
        wanted = index < len(node.outputs) and run.is_used(node.outputs[index])
        found.append(_joined(run, node, scan, 0) if wanted else "")
    return found


def _scan(run: Run, node: OnnxNode) -> None:
    """Slices of what is scanned, one a turn; states go from turn to turn."""
    (body,) = node.branches
    ask = NodeImport(node, run.builder)
    scanned = ask.integer("num_scan_inputs")
    states = list(node.inputs[: len(node.inputs) - scanned])
    gives = len(body.outputs) - len(states)
    if not 1 <= scanned <= len(node.inputs) or len(body.inputs) != len(node.inputs) or gives < 0:
        raise Refusal("invalid-node", f"its body has {len(body.inputs)} inputs where {len(node.inputs)} are given")
    axes = _per(ask, "scan_input_axes", scanned)
    back = _per(ask, "scan_input_directions", scanned)
    out_axes = _per(ask, "scan_output_axes", gives)
    out_back = _per(ask, "scan_output_directions", gives)
    sources = node.inputs[len(states) :]
    axes = [ask.axis(axis, ask.type_of(name).rank) for axis, name in zip(axes, sources, strict=True)]
    extents = {ask.type_of(name).shape[axis] for axis, name in zip(axes, sources, strict=True)}
    if len(extents) != 1:
        raise ShapeError(f"what is scanned differs in extent: {', '.join(map(str, sorted(extents)))}")
    (length,) = extents
    constants = run.define(body)
    given_each: list[list[str]] = [[] for _ in range(gives)]
    for turn in range(length):
        slices = [
            _slice(ask, name, axis, length - 1 - turn if reverse else turn)
            for name, axis, reverse in zip(sources, axes, back, strict=True)
        ]
        given = constants | dict(zip(body.inputs, (*states, *slices), strict=True))
        results = run.place(node, body, given, f"{node.name}/{turn}")
        if any(map(run.is_lost, results)):
            run.lose(node)
            return
        for each, result in zip(given_each, results[len(states) :], strict=True):
            each.append(result)
        states = list(results[: len(states)])
    found = list(states)
    for index, (each, axis, reverse) in enumerate(zip(given_each, out_axes, out_back, strict=True), len(states)):
        wanted = index < len(node.outputs) and run.is_used(node.outputs[index])
        found.append(_joined(run, node, each[::-1] if reverse else each, axis) if wanted else "")
    run.give(node, found)


def _per(ask: NodeImport, name: str, entries: int) -> list[int]:
    """A list of integers of that many entries, zeros where none is given. Raises Refusal."""
    found = list(ask.integers(name, (0,) * entries))
    if len(found) != entries:
        raise Refusal("invalid-node", f"attribute '{name}' has {len(found)} entries where {entries} are needed")
    return found


def _slice(ask: NodeImport, name: str, axis: int, at: int) -> str:
    """Position `at` of an axis, without the axis."""
    shape = ask.type_of(name).shape
    begin = tuple(at if index == axis else 0 for index in range(len(shape)))
    rest = (*shape[:axis], *shape[axis + 1 :])
    part = ask.emit(Slice(begin, (*shape[:axis], 1, *shape[axis + 1 :]), (1,) * len(shape)), [name])
    return ask.emit(Reshape(rest), [part])


def _sequence_map(run: Run, node: OnnxNode) -> None:
    """The body for each tensor of a sequence, and of the others of that length; tensors are given to all as they are.
    What it gives are sequences."""
    (body,) = node.branches
    ask = NodeImport(node, run.builder)
    lists = [run.builder.sequences.get(name) for name in node.inputs]
    first = ask.sequence(0)
    if any(each is not None and len(each) != len(first) for each in lists):
        raise ShapeError("its sequences differ in length")
    constants = run.define(body)
    found: list[list[str]] = [[] for _ in body.outputs]
    for turn in range(len(first)):
        picked = [name if each is None else each[turn] for name, each in zip(node.inputs, lists, strict=True)]
        if len(picked) != len(body.inputs):
            raise Refusal("invalid-node", f"its body has {len(body.inputs)} inputs where {len(picked)} are given")
        given = constants | dict(zip(body.inputs, picked, strict=True))
        results = run.place(node, body, given, f"{node.name}/{turn}")
        if any(map(run.is_lost, results)):
            run.lose(node)
            return
        for each, result in zip(found, results, strict=True):
            each.append(result)
    for index, each in enumerate(found[: len(node.outputs)]):
        if node.outputs[index]:
            ask.sequence_of(each, index)


def _joined(run: Run, node: OnnxNode, each: Sequence[str], axis: int) -> str:
    """Tensors of one shape side by side along a new axis. Raises Refusal where there are none, or too many."""
    if not each:
        raise Refusal("unsupported-op", "its body never runs, so that a result of its turns has no known shape")
    if len(each) > MOST_ENTRIES:
        raise Refusal("model-too-large", f"{len(each)} turns give a result each; at most {MOST_ENTRIES} are joined")
    ask = NodeImport(node, run.builder)
    shape = ask.type_of(each[0]).shape
    axis = ask.axis(axis, len(shape) + 1)
    cell = (*shape[:axis], 1, *shape[axis:])
    return ask.emit(Concat(axis), [ask.emit(Reshape(cell), [name]) for name in each])


def _number(run: Run, node: OnnxNode, array: Array, what: str) -> str:
    return NodeImport(node, run.builder).helper(array, what)


def _constant(run: Run, name: str) -> Array | None:
    """The array of a constant; None of what is data, lost or a sequence."""
    return run.builder.constant(name) if name in run.builder.values else None

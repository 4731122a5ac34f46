"""What planner tests ask of a graph before and after a pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import onnx
from planner_fakes import POLICY
from random_graphs import random_model

from bolt_build.graph import invariants
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.reference import evaluate
from bolt_build.graph.text import format_graph, parse_graph
from bolt_build.planner.engine_plan import BatchPlan, Step, StepTensor
from bolt_build.planner.passes.base import Pass, PassResult


def graph(text: str) -> Graph:
    """A graph from indented text."""
    return parse_graph(dedent(text).strip() + "\n")


def body(after: Graph) -> str:
    """The nodes of a graph as text, one a line; the head, constants and types left out."""
    lines = [line.strip() for line in format_graph(after).splitlines() if " = " in line]
    return "\n".join(line.split(":", 1)[0] + " =" + line.split("=", 1)[1] for line in lines)


def said(result: PassResult) -> list[tuple[str, str, str]]:
    """Subject, action and reason of every decision."""
    return [(d.subject, d.action, d.reason) for d in result.decisions]


def run(each: Pass, before: Graph, precision: str = "") -> PassResult:
    """The pass applied, with everything checked that holds of any pass: invariants, outputs' names, values."""
    result = each.run(before, POLICY, precision)
    invariants.check(result.graph)
    assert result.graph.outputs == before.outputs
    assert result.graph.inputs == before.inputs
    same_values(before, result.graph)
    return result


def random_inputs(of: Graph, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=of.type(name).shape).astype(numpy_dtype(of.type(name).dtype)) for name in of.inputs
    }


def same_values(before: Graph, after: Graph, seeds: tuple[int, ...] = (0, 1), tolerance: float = 2e-5) -> None:
    """Every value of `after` that has a name of `before` has its values too."""
    for seed in seeds:
        inputs = random_inputs(before, seed)
        expected, found = evaluate(before, inputs), evaluate(after, inputs)
        shared = [v.name for v in after.values if not v.synthetic and v.constant is None]
        assert set(after.outputs) <= set(found)
        for name in dict.fromkeys([*shared, *after.outputs]):
            scale = max(1.0, float(np.abs(expected[name].astype(np.float64)).max(initial=0)))
            np.testing.assert_allclose(
                found[name].astype(np.float64), expected[name].astype(np.float64), rtol=tolerance,
                atol=tolerance * scale, err_msg=f"value '{name}'",
            )  # fmt: skip


def no_step_overwrites_what_is_read_later(plan: BatchPlan) -> None:
    """Straight from the definition: where a step writes, nothing lies that another step made before and a third reads
    after, whatever order the steps' dependencies allow. A step may write over what it reads itself, and parts of a
    tensor are written before the step that makes it of them."""
    before = [set[int]() for _ in plan.steps]
    for step in plan.steps:
        for earlier in step.after:
            before[step.index] |= {earlier, *before[earlier]}
    made = {t.value: (step.index, t) for step in plan.steps for t in step.outputs}
    readers: dict[str, list[int]] = {name: [] for name in made}
    for step in plan.steps:
        for t in step.inputs:
            if t.value in readers:
                readers[t.value].append(step.index)
    for writer in plan.steps:
        for name, (maker, tensor) in made.items():
            if maker == writer.index or not any(overlap(written, tensor) for written in written_by(writer)):
                continue
            late = [r for r in readers[name] if r != writer.index and r not in before[writer.index]]
            assert not late or writer.index in before[maker], (
                f"step {writer.index} '{writer.name}' writes over '{name}', which step {late[0]} may still read"
            )


def written_by(step: Step) -> tuple[StepTensor, ...]:
    """What the step writes: nothing where it is a view, and of a concatenation what does not lie in its place."""
    if step.view:
        return ()
    if not isinstance(step.problem.op, Concat):
        return step.outputs
    (output,), parts = step.outputs, []
    pieces, at = output.operand.pieces(step.problem.op.axis), output.location
    row = output.operand.row if pieces > 1 and output.operand.nbytes else 0
    pitch = output.pitch or row
    innermost = pieces > 1 and pieces * row == output.operand.type.elements
    for t in step.inputs:
        if t.location != at:
            parts.append(replace(t, location=at, pitch=pitch) if pieces == 1 or innermost else output)
        size = t.operand.nbytes // pieces if t.operand.nbytes else 0
        at = replace(at, at=at.at + size) if at.kind == "arena" else replace(at, offset=at.offset + size)
    return tuple(parts)


def overlap(a: StepTensor, b: StepTensor) -> bool:
    """True where the two have a byte in common."""
    if a.location.kind != b.location.kind or (a.location.kind != "arena" and a.location.at != b.location.at):
        return False
    ranges = [_runs(t) for t in (a, b)]
    if max(r[0].start for r in ranges) >= min(r[-1].stop for r in ranges):
        return False
    # Both lie in order: of two runs that have no byte in common, the one that ends first has none with later ones.
    first, second = map(iter, ranges)
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        if max(one.start, other.start) < min(one.stop, other.stop):
            return True
        if one.stop <= other.stop:
            one = next(first, None)
        else:
            other = next(second, None)
    return False


def _runs(t: StepTensor) -> list[range]:
    """The bytes of a tensor, in runs."""
    begin, size = t.location.at if t.location.kind == "arena" else t.location.offset, t.operand.format.dtype.nbytes
    if not t.pitch or not t.operand.nbytes:
        return [range(begin, begin + t.operand.nbytes)]
    row, count = t.operand.row * size, t.operand.type.elements // t.operand.row
    return [range(at, at + row) for at in range(begin, begin + count * t.pitch * size, t.pitch * size)]


def compare(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> None:  # type: ignore[type-arg]
    for name, array in found.items():
        wanted = expected[name].astype(np.float64)
        limit = tolerance * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(array.astype(np.float64), wanted, rtol=0, atol=limit, err_msg=f"output '{name}'")


def random_graph(seed: int, directory: Path) -> Graph:
    path = directory / "model.onnx"
    onnx.save(random_model(seed), path)
    return load_model(path).bind(2, ())

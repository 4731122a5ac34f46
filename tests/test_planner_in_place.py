"""Concatenations and slices that copy nothing: what lies within what, and that no kernel notices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import graph, no_step_overwrites_what_is_read_later, random_inputs
from planner_fakes import AS_MODEL, HOST_TARGET, SPEC, recipe
from planner_interpreter import random_order, run_plan
from test_planner_plans import compare

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, Family, ProposedStep, Refusal
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.reference import evaluate
from bolt_build.planner.engine_plan import BatchPlan, Step
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.schema.recipe import IoSpec
from bolt_build.targets import Target

ROW_IO, LAST_IO = AS_MODEL, IoSpec("model", "channels_last")
HOST = load(HOST_TARGET)


def _apart(step: ProposedStep) -> ProposedStep:
    """The step with rows of the output, and of all inputs, that may lie apart: the interpreter can do that."""
    return step if step.view else replace(step, pitched=(0,), reads_apart=tuple(range(len(step.inputs))))


class Pitching(Portable):
    """Kernels of one family for everything, whose rows may lie apart."""

    step = staticmethod(_apart)

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        alternatives, refusals = super().propose(graph, node, target, precision)
        rows = tuple(replace(a, steps=tuple(map(self.step, a.steps))) for a in alternatives)
        return rows, refusals


def _stored_apart(step: ProposedStep) -> ProposedStep:
    return replace(_apart(step), reads_apart=())


class Storing(Pitching):
    """The same, but nothing reads rows that lie apart."""

    step = staticmethod(_stored_apart)


def planned(of: Graph, queues: int = 1, io: IoSpec = AS_MODEL, families: Sequence[Family] = HOST) -> PlannedEngine:
    """The engine, whose plan has been run and compared, in its own order and in one that its queues allow."""
    engine = plan_engine([of], recipe(io), SPEC, replace(HOST_TARGET, queues=queues), families)
    (plan,) = engine.plan.plans
    no_step_overwrites_what_is_read_later(plan)
    inputs = random_inputs(of, 0)
    expected = evaluate(of, inputs)
    compare(run_plan(engine, plan, inputs), expected, 1e-5)
    compare(run_plan(engine, plan, inputs, random_order(plan, 0)), expected, 1e-5)
    return engine


def places(plan: BatchPlan) -> dict[str, str]:
    """Where each value lies that a step makes: its memory, and the bytes from and to."""

    def shown(step: Step) -> dict[str, str]:
        found = {}
        for t in step.outputs:
            begin = t.location.at if t.location.kind == "arena" else t.location.offset
            found[t.value] = f"{t.location.kind} {begin}-{begin + t.operand.nbytes}"
        return found

    return {name: place for step in plan.steps for name, place in shown(step).items()}


def kernels(plan: BatchPlan) -> list[str]:
    return [f"{step.name}: {'view' if step.view else step.problem.op.kind}" for step in plan.steps]


def said(engine: PlannedEngine) -> list[tuple[str, str, str]]:
    return [(d.subject, d.action, d.reason) for d in engine.plan.decisions if d.stage == "write-in-place"]


def test_the_inputs_of_a_concatenation_are_written_where_its_output_lies() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[1,4,3,4]) -> (%y) {
          %a = relu(%x) // "a"
          %b = tanh(%x) // "b"
          %c = concat(%a, %b) axis=1 // "c"
          %y = softmax(%c) axis=1 // "y"
        }""")
    )
    (plan,) = engine.plan.plans
    assert kernels(plan) == ["a: activation", "b: activation", "c: view", "y: softmax"]
    assert places(plan) == {"a": "arena 0-192", "b": "arena 192-384", "c": "arena 0-384", "y": "output 0-384"}
    assert said(engine) == [("batch 1: c", "copies nothing", "its 2 inputs are written where it lies")]


def test_also_in_the_callers_buffer() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[3,4]) -> (%y) {
          %a = relu(%x) // "a"
          %b = tanh(%x) // "b"
          %y = concat(%a, %b) axis=0 // "y"
        }""")
    )
    assert places(engine.plan.plans[0]) == {"a": "output 0-48", "b": "output 48-96", "y": "output 0-96"}


def test_concatenations_of_concatenations_lie_within_each_other() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[1,4,2,2]) -> (%y) {
          %a = relu(%x) // "a"
          %b = tanh(%x) // "b"
          %c = concat(%a, %b) axis=1 // "c"
          %d = neg(%c) // "d"
          %e = concat(%d, %c) axis=1 // "e"
          %y = softmax(%e) axis=1 // "y"
        }""")
    )
    found = places(engine.plan.plans[0])
    assert [found[name] for name in "abcde"] == [
        "arena 128-192", "arena 192-256", "arena 128-256", "arena 0-128", "arena 0-256",
    ]  # fmt: skip


DECLINED = {
    "a graph input": (
        "(%x: f32[4,4]) -> (%y) {\n %a = relu(%x)\n %c = concat(%x, %a) axis=0 // \"c\"\n %y = softmax(%c) axis=1",
        ("copies 1 of 2 inputs", "'x': a graph input"),
    ),
    "a graph output": (
        "(%x: f32[4,4]) -> (%y, %a) {\n %a = relu(%x)\n %c = concat(%a, %a) axis=0 // \"c\"\n %y = softmax(%c) axis=1",
        ("declined", "'a': a graph output"),
    ),
    "a constant": (
        ("(%x: f32[4,4]) -> (%y) {\n const %k: f32[2,4] #\n %a = relu(%x)\n"
        ' %c = concat(%a, %k) axis=0 // "c"\n %y = softmax(%c) axis=1'),
        ("copies 1 of 2 inputs", "'k': a constant"),
    ),
    "twice in one": (
        "(%x: f32[4,4]) -> (%y) {\n %a = relu(%x)\n %c = concat(%a, %a) axis=0 // \"c\"\n %y = softmax(%c) axis=1",
        ("copies 1 of 2 inputs", "'a': already a part of another concatenation, or of this one"),
    ),
    "a slice of something else": (
        ("(%x: f32[4,4]) -> (%y) {\n %a = relu(%x)\n %b = softmax(%x) axis=0\n"
            " %s = slice(%b) begin=[1,0] count=[2,4] step=[1,1]\n"
        ' %c = concat(%a, %s) axis=0 // "c"\n %y = softmax(%c) axis=1'),
        ("copies 1 of 2 inputs", "'s': itself a part of another tensor"),
    ),
    "misaligned": (
        ("(%x: f32[3,3]) -> (%y) {\n %a = relu(%x)\n %b = tanh(%x)\n"
        ' %c = concat(%a, %b) axis=0 // "c"\n %y = softmax(%c) axis=1'),
        ("copies 1 of 2 inputs", "'b': would begin at byte 36, which is no multiple of 16"),
    ),
    "in pieces": (
        ("(%x: f32[3,4]) -> (%y) {\n %a = relu(%x)\n %b = tanh(%x)\n"
        ' %c = concat(%a, %b) axis=1 // "c"\n %y = softmax(%c) axis=1'),
        ("declined", "'a': stored in dense rows by 'portable'; 'b': stored in dense rows by 'onednn'"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DECLINED)
def test_what_cannot_be_written_in_place_is_copied(case: str) -> None:
    text, expected = DECLINED[case]
    assert said(planned(graph(f"graph g batch=1 {text}\n}}"))) == [("batch 1: c", *expected)]


PITCHING, STORING = Pitching(), Storing()
BRANCHES = """
    graph g batch=2 (%x: f32[2,8,3,3]) -> (%y) {{
      %a = relu(%x) // "a"
      %b = {b} // "b"
      %c = concat(%a, %b) axis=1 // "c"
      {more}
      %y = softmax({of}) axis=1 // "y"
    }}"""


def branches(b: str = "tanh(%x)", more: str = "", of: str = "%c", family: Family = PITCHING) -> PlannedEngine:
    """Two branches that meet, channels last, by kernels that can store rows apart."""
    return planned(graph(BRANCHES.format(b=b, more=more, of=of)), io=LAST_IO, families=(family,))


def test_channels_that_lie_innermost_are_stored_between_each_other() -> None:
    engine = branches()
    (plan,) = engine.plan.plans
    assert kernels(plan) == ["a: activation", "b: activation", "c: view", "y: softmax"]
    parts = {t.value: t for step in plan.steps for t in step.outputs}
    assert [(parts[name].location.at, parts[name].pitch, parts[name].reach) for name in "abc"] == [
        (0, 16, 1120), (32, 16, 1120), (0, 0, 1152),
    ]  # fmt: skip
    assert (parts["a"].onnx, parts["c"].onnx) == (None, "c")
    assert said(engine) == [("batch 2: c", "copies nothing", "its 2 inputs are written where it lies")]


@pytest.mark.parametrize(
    ("b", "more", "last", "expected"),
    [
        (
            "tanh(%x)", "%d = neg(%a)\n %m = neg(%c)\n %e = concat(%m, %d) axis=1", "%e",
            ("copies 1 of 2 inputs", "'a': read in dense rows by 'd'"),
        ),
        (
            "neg(%a)", "%d = tanh(%a)\n %e = concat(%c, %d) axis=1", "%e",
            ("copies 1 of 3 inputs", "'a': read in dense rows by 'b' and 1 other steps"),
        ),
        ("neg(%x)", "%e = concat(%c, %a) axis=1", "%e", ("copies 2 of 3 inputs", "'a': read twice by this")),
        (
            "slice(%x) begin=[0,0,0,0] count=[2,3,3,3] step=[1,1,1,1]", "", "%c",
            ("declined", "'a', 'b': a part of rows of 44 bytes, which is no multiple of 16"),
        ),
    ],
)  # fmt: skip
def test_rows_that_must_be_dense_are_copied(b: str, more: str, last: str, expected: tuple[str, str]) -> None:
    concats = [found for found in said(branches(b, more, last, STORING)) if found[0] in ("batch 2: c", "batch 2: e")]
    assert concats[0][1:] == expected


FLAT = """
    graph g batch=2 (%x: f32[2,8,3,3]) -> (%y, %d) {
      %a = relu(%x) // "a"
      %b = tanh(%a) // "b"
      %c = concat(%a, %b) axis=1 // "c"
      %d = tanh(%c) // "d"
      %e = slice(%d) begin=[0,0,0,0] count=[2,4,3,3] step=[1,1,1,1] // "e"
      %f = concat(%a, %b, %e) axis=1 // "f"
      %y = softmax(%f) axis=1 // "y"
    }"""
NESTED = FLAT.replace("concat(%a, %b, %e)", "concat(%c, %e)")


@pytest.mark.parametrize("text", [FLAT, NESTED])
def test_a_dense_block_is_one_buffer_that_grows(text: str) -> None:
    """Each concatenation extends the one before, whether it names all of its inputs or that one; those who read what
    was there before read the first channels of each row."""
    engine = planned(graph(text), io=LAST_IO, families=(Pitching(),))
    (plan,) = engine.plan.plans
    assert [step.name for step in plan.steps if step.view] == ["c", "f"]
    lies = {t.value: (t.location.at, t.pitch) for step in plan.steps for t in step.outputs}
    begin = lies["f"][0]
    assert {name: (lies[name][0] - begin, lies[name][1]) for name in "abcef"} == {
        "a": (0, 20), "b": (32, 20), "c": (0, 20), "e": (64, 20), "f": (0, 0),
    }  # fmt: skip
    reads = {step.name: [t.pitch for t in step.inputs] for step in plan.steps}
    assert (reads["b"], reads["d"], reads["y"]) == ([20], [20], [0])
    assert [action for _, action, _ in said(engine)] == ["copies nothing", "copied", "copies nothing"]


def test_a_concatenation_that_is_read_in_dense_rows_is_made_beside_the_buffer_that_grows() -> None:
    engine = planned(graph(FLAT), io=LAST_IO, families=(Storing(),))
    (plan,) = engine.plan.plans
    assert [step.name for step in plan.steps if step.view] == []
    assert said(engine) == [
        ("batch 2: c", "declined", "'a': read in dense rows by 'b' and 1 other steps; 'b': read in dense rows by 'f'"),
        ("batch 2: e", "copied", "written where a concatenation lies"),
        (
            "batch 2: f",
            "copies 2 of 3 inputs",
            "'a': read in dense rows by 'b' and 1 other steps; 'b': read in dense rows by 'c'",
        ),
    ]


SLICES = """
    graph g batch=2 (%x: f32[2,24,3,3]) -> (%y, %z{out}) {{
      %a = relu(%x) // "a"
      %s = slice(%a) begin=[0,0,0,0] count=[2,{cut},3,3] step=[1,1,1,1] // "s"
      %t = slice(%a) begin=[0,{cut},0,0] count=[2,{rest},{rows},3] step=[1,1,1,1] // "t"
      %y = softmax(%s) axis=1 // "y"
      %z = {reads} // "z"
    }}"""


def sliced(family: Family = PITCHING, **parts: object) -> PlannedEngine:
    """Two slices of one tensor's channels, channels last."""
    text = SLICES.format(**{"cut": 8, "rest": 16, "rows": 3, "out": "", "reads": "tanh(%t)"} | parts)
    return planned(graph(text), io=LAST_IO, families=(family,))


def test_a_slice_of_channels_is_read_where_they_lie() -> None:
    engine = sliced()
    (plan,) = engine.plan.plans
    assert sorted(kernels(plan)) == ["a: activation", "s: view", "t: view", "y: softmax", "z: activation"]
    read = {step.name: [(t.location.at - plan.steps[0].outputs[0].location.at, t.pitch) for t in step.inputs]
            for step in plan.steps if step.name in "yz"}  # fmt: skip
    assert read == {"y": [(0, 24)], "z": [(32, 24)]}
    assert said(engine) == [
        ("batch 2: s", "copies nothing", "8 of 24 elements of each row are read where 'a' lies"),
        ("batch 2: t", "copies nothing", "16 of 24 elements of each row are read where 'a' lies"),
    ]


class Dense(Pitching):
    """The same, but an activation reads dense rows."""

    step = staticmethod(
        lambda step: replace(_apart(step), reads_apart=(0,) if step.problem.op.kind == "softmax" else ())
    )


@pytest.mark.parametrize(
    ("family", "parts", "reason"),
    [
        (Dense(), {}, "read in dense rows by 'z', activation of 'portable'"),
        (PITCHING, {"cut": 6, "rest": 18}, "begins at byte 24 of each row, which is no multiple of 16"),
        (PITCHING, {"rows": 2}, "takes no run of each row"),
        (PITCHING, {"out": ", %t"}, "a graph output"),
    ],
)
def test_a_slice_that_somebody_cannot_read_there_is_copied(
    family: Family, parts: dict[str, object], reason: str
) -> None:
    assert said(sliced(family, **parts))[1] == ("batch 2: t", "copied", reason)


def test_slices_lie_where_a_concatenation_has_their_input_and_side_by_side_are_one() -> None:
    """As in cross-stage blocks: the second half is computed with and concatenated behind both."""
    engine = planned(
        graph("""
        graph g batch=2 (%x: f32[2,16,3,3]) -> (%y) {
          %a = relu(%x) // "a"
          %s = slice(%a) begin=[0,8,0,0] count=[2,8,3,3] step=[1,1,1,1] // "s"
          %b = tanh(%s) // "b"
          %c = concat(%a, %b) axis=1 // "c"
          %y = softmax(%c) axis=1 // "y"
        }"""),
        io=LAST_IO,
        families=(PITCHING,),
    )
    (plan,) = engine.plan.plans
    assert kernels(plan) == ["a: activation", "s: view", "b: activation", "c: view", "y: softmax"]
    lies = {t.value: (t.location.at, t.pitch) for step in plan.steps for t in step.outputs}
    begin = lies["c"][0]
    assert {name: (lies[name][0] - begin, lies[name][1]) for name in "asb"} == {
        "a": (0, 24),
        "s": (32, 24),
        "b": (64, 24),
    }


def test_a_slice_of_whole_rows_is_a_view() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[4,8]) -> (%y, %z) {
          %a = relu(%x) // "a"
          %t = slice(%a) begin=[0,0] count=[2,8] step=[1,1] // "t"
          %b = slice(%a) begin=[2,0] count=[2,8] step=[1,1] // "b"
          %y = softmax(%t) axis=1 // "y"
          %z = tanh(%b) // "z"
        }""")
    )
    (plan,) = engine.plan.plans
    assert kernels(plan) == ["a: activation", "t: view", "b: view", "y: softmax", "z: activation"]
    found = places(plan)
    assert [found[name] for name in "atb"] == ["arena 0-128", "arena 0-64", "arena 64-128"]


@pytest.mark.parametrize(
    ("slice", "kind"),
    [
        ("begin=[1,0] count=[2,3] step=[1,1]", "slice"),  # begins at byte 12
        ("begin=[0,0] count=[4,2] step=[1,1]", "slice"),  # pieces of rows
        ("begin=[3,0] count=[4,3] step=[-1,1]", "slice"),
        ("begin=[0,0] count=[3,3] step=[1,1]", "view"),
    ],
)
def test_any_other_slice_is_copied(slice: str, kind: str) -> None:
    engine = planned(
        graph(f"""
        graph g batch=1 (%x: f32[4,3]) -> (%y) {{
          %a = softmax(%x) axis=0 // "a"
          %s = slice(%a) {slice} // "s"
          %y = softmax(%s) axis=1 // "y"
        }}""")
    )
    assert kernels(engine.plan.plans[0])[1] == f"s: {kind}"


def test_a_slice_of_the_callers_input_is_read_there() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          %s = slice(%x) begin=[1,0] count=[2,4] step=[1,1] // "s"
          %y = softmax(%s) axis=1 // "y"
        }""")
    )
    assert places(engine.plan.plans[0]) == {"s": "input 16-48", "y": "output 0-32"}


def test_an_output_that_is_a_slice_is_copied_to_the_caller() -> None:
    engine = planned(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          %a = softmax(%x) axis=0 // "a"
          %y = slice(%a) begin=[1,0] count=[2,4] step=[1,1] // "y"
        }""")
    )
    assert kernels(engine.plan.plans[0]) == ["a: softmax", "y: view", "y@output0: identity"]


@st.composite
def movers(draw: st.DrawFn) -> Graph:
    """Graphs full of concatenations and slices along any axis, with elementwise nodes that may work in place."""
    shape = (draw(st.sampled_from([1, 1, 2])), *(draw(st.sampled_from([1, 2, 4])) for _ in range(3)))
    found, lines, read = [("x", shape)], list[str](), set[str]()
    for index in range(draw(st.integers(2, 10))):
        name, (source, extents) = f"v{index}", draw(st.sampled_from(found))
        kind, axis = draw(st.sampled_from(["relu", "concat", "concat", "slice", "reshape"])), draw(st.integers(0, 3))
        reads = [source]
        if kind == "concat":
            alike = [n for n, e in found if all(e[a] == extents[a] for a in range(4) if a != axis)]
            reads += draw(st.lists(st.sampled_from(alike), min_size=1, max_size=2))
            total = sum(dict(found)[n][axis] for n in reads)
            if total > 16:
                continue
            result = (*extents[:axis], total, *extents[axis + 1 :])
            text = f"concat({', '.join('%' + n for n in reads)}) axis={axis}"
        elif kind == "slice":
            begin = draw(st.integers(0, extents[axis] - 1))
            result = (*extents[:axis], draw(st.integers(1, extents[axis] - begin)), *extents[axis + 1 :])
            at = [begin if a == axis else 0 for a in range(4)]
            text = f"slice(%{source}) begin={at} count={list(result)} step=[1, 1, 1, 1]"
        elif kind == "reshape":
            result = (extents[0], extents[2], extents[1], extents[3])
            text = f"reshape(%{source}) shape={list(result)}"
        else:
            result, text = extents, f"{draw(st.sampled_from(['relu', 'tanh', 'neg']))}(%{source})"
        lines.append(f"%{name} = {text.replace(', ', ',') if kind != 'concat' else text}")
        read.update(reads)
        found.append((name, result))
    outputs = [name for name, _ in found if name not in read]
    head = f"graph g batch=1 (%x: f32[{','.join(map(str, shape))}]) -> ({', '.join('%' + n for n in outputs)}) {{"
    return graph("\n".join([head, *lines, "}"]))


FAMILIES: tuple[Sequence[Family], ...] = HOST, (Pitching(),), (Storing(),)


@settings(max_examples=200, deadline=None)
@given(movers(), st.sampled_from([1, 3]), st.sampled_from([ROW_IO, LAST_IO]), st.sampled_from(FAMILIES))
def test_whatever_lies_within_what_values_stay_right(
    of: Graph, queues: int, io: IoSpec, families: Sequence[Family]
) -> None:
    planned(of, queues, io, families)

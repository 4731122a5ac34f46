"""Steps: order, dependencies, conversions, and where inputs, outputs, views and constants live."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planner_checks import graph
from planner_fakes import AS_MODEL, FAKE, HOST_TARGET, LAST, ROW, SPEC, Fake, recipe

from bolt_build.errors import BoltError
from bolt_build.families.base import Candidate, KernelProblem, Refusal
from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.moves.shape import Identity
from bolt_build.planner.engine_plan import BatchPlan, Step
from bolt_build.planner.plan_engine import plan_engine, structure
from bolt_build.schema.recipe import IoSpec
from bolt_build.targets import Target


def plan(of: Graph, family: Fake = FAKE, queues: int = 1, io: IoSpec = AS_MODEL) -> BatchPlan:
    target = replace(HOST_TARGET, queues=queues)
    return plan_engine([of], recipe(io), SPEC, target, [family]).plan.plans[0]


def shown(step: Step) -> str:
    """A step in a line: name, kind, and where its tensors live."""

    def place(tensors: object) -> str:
        return " ".join(f"{t.value}:{t.location.kind}" for t in tensors)  # type: ignore[attr-defined]

    kind = "view" if step.view else step.problem.op.kind
    return f"{step.name}: {kind} {place(step.inputs)} -> {place(step.outputs)}"


def lines(of: BatchPlan) -> list[str]:
    return [shown(step) for step in of.steps]


def test_the_last_step_writes_into_the_callers_buffer() -> None:
    found = plan(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %y = softmax(%a) axis=1 // "y"
        }""")
    )
    assert lines(found) == [
        "a: matmul x:input w:weight -> a:arena",
        "y: softmax a:arena -> y:output",
    ]


def test_a_view_of_the_output_is_written_through_the_view() -> None:
    found = plan(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %y = reshape(%a) shape=[16] // "y"
        }""")
    )
    assert lines(found) == ["a: matmul x:input w:weight -> a:output", "y: view a:output -> y:output"]
    assert found.arena_bytes == 0
    assert found.steps[1].candidate == Candidate("view")


@pytest.mark.parametrize(
    ("outputs", "nodes", "copy"),
    [
        ("%y", '%y = identity(%x) // "y"', None),
        ("%x", "", "x@output0: identity x:input -> x@output0:output"),
        ("%c", "", "c@output0: identity c:weight -> c@output0:output"),
        ("%y", '%y = reshape(%x) shape=[4,2] // "y"', "y@output0: identity y:input -> y@output0:output"),
    ],
)
def test_an_output_that_no_step_can_write_is_copied(outputs: str, nodes: str, copy: str | None) -> None:
    constant = "const %c: f32[2] {1, 2}" if outputs == "%c" else ""
    found = plan(graph(f"graph g batch=1 (%x: f32[2,4]) -> ({outputs}) {{\n{constant}\n{nodes}\n}}"))
    assert lines(found)[-1] == (copy or "y: identity x:input -> y:output")
    assert found.steps[-1].outputs[0].onnx == outputs[1:]


def test_two_outputs_with_the_same_bytes_are_one_write_and_one_copy() -> None:
    found = plan(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y, %a) {
          %a = relu(%x) // "a"
          %y = reshape(%a) shape=[16] // "y"
        }""")
    )
    assert lines(found) == [
        "a: activation x:input -> a:output",
        "y: view a:output -> y:output",
        "a@output1: identity a:output -> a@output1:output",
    ]
    assert [step.outputs[0].location.at for step in found.steps] == [0, 0, 1]


def test_a_copy_that_no_family_can_make_is_a_diagnostic() -> None:
    class NoCopies(Fake):
        def candidates(
            self, problem: KernelProblem, target: Target
        ) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
            if isinstance(problem.op, Identity):
                return (), (Refusal("fake", "identity", "does not copy"),)
            return super().candidates(problem, target)

    with pytest.raises(BoltError) as raised:
        plan(graph("graph g batch=1 (%x: f32[2]) -> (%x) {\n}"), NoCopies())
    assert [d.message for d in raised.value.diagnostics] == [
        "output 'x' needs a copy to f32/row and no kernel family can make it"
    ]


IMAGES = """
    graph g batch=1 (%x: f32[1,2,3,3]) -> (%y) {
      %a = relu(%x) // "a"
      %b = softmax(%a) axis=1 // "b"
      %c = softmax(%a) axis=2 // "c"
      %y = concat(%b, %c) axis=1 // "y"
    }"""


def test_a_conversion_stands_before_its_first_reader_and_serves_the_second() -> None:
    order = {"a": (ROW,), "b": (LAST,), "c": (LAST,), "y": (LAST,)}
    found = plan(graph(IMAGES), Fake(layouts=lambda node: order[node.name]))
    assert lines(found) == [
        "a: activation x:input -> a:arena",
        "a@f32/channels_last: convert a:arena -> a@f32/channels_last:arena",
        "b: softmax a@f32/channels_last:arena -> b:arena",
        "c: softmax a@f32/channels_last:arena -> c:arena",
        "y: concat b:arena c:arena -> y:arena",
        "y@f32/row: convert y:arena -> y@f32/row:output",
    ]
    assert [step.outputs[0].onnx for step in found.steps] == ["a", None, "b", "c", "y", None]


def test_inputs_and_outputs_take_the_format_that_the_recipe_asks_for() -> None:
    found = plan(graph(IMAGES), io=IoSpec("bf16", "channels_last"))
    assert [str(port.operand.format) for port in (*found.inputs, *found.outputs)] == ["bf16/channels_last"] * 2
    assert found.steps[0].problem.op.kind == found.steps[-1].problem.op.kind == "convert"


def test_on_one_queue_the_order_is_total_and_on_more_it_is_what_data_asks_for() -> None:
    assert [step.after for step in plan(graph(IMAGES)).steps] == [(), (0,), (1,), (2,)]
    assert [step.after for step in plan(graph(IMAGES), queues=2).steps] == [(), (0,), (0,), (1, 2)]


def test_a_reader_of_a_conversion_waits_for_it() -> None:
    order = {"a": (ROW,), "b": (LAST,), "c": (ROW,), "y": (ROW,)}
    found = plan(graph(IMAGES), Fake(layouts=lambda node: order[node.name]), queues=2)
    names = [step.name for step in found.steps]
    after = {step.name: [names[i] for i in step.after] for step in found.steps}
    assert after == {
        "a": [], "a@f32/channels_last": ["a"], "b": ["a@f32/channels_last"], "c": ["a"],
        "b@f32/row": ["b"], "y": ["c", "b@f32/row"],
    }  # fmt: skip


def test_names_and_shapes_make_the_structure_and_weights_do_not() -> None:
    text = 'graph g batch=1 (%x: f32[2]) -> (%y) {{\nconst %c: f32[2] {{{}}}\n%y = add(%x, %c) // "y"\n}}'
    one, other = graph(text.format("1, 2")), graph(text.format("3, 3"))
    assert structure([one]) == structure([other])
    assert structure([one]) == structure([replace(other, name="another_file")])
    assert structure([one]) != structure([graph(text.replace("add", "sub").format("1, 2"))])
    assert structure([one]) != structure([graph(text.replace("%c", "%d").format("1, 2"))])

"""Recurrences that exporters unrolled become one operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.recurrent.state_scan import StateScan
from bolt_build.graph.text import format_graph, parse_graph
from bolt_build.planner.passes.recognise.state_scans import RECOGNISE_SCANS

WORDS = "recognised a scan"
STEPS = 6


class Loop:
    """Text of a graph whose steps are unrolled. Inputs %a and %b are [2, steps, 3], %m is [2, steps, 3, 4], %c is
    [2, steps, 4] and %s0 [2, 3] is the first state."""

    def __init__(self, steps: int = STEPS) -> None:
        self.steps, self.lines, self.names = steps, list[str](), 0

    def put(self, text: str) -> str:
        self.names += 1
        name = f"v{self.names}"
        self.lines.append(f'%{name} = {text} // "{name}"')
        return name

    def cut(self, of: str, at: int, *rest: int) -> str:
        """One place of axis 1, without that axis."""
        begin = ",".join(map(str, (0, at, *(0 for _ in rest))))
        count = ",".join(map(str, (2, 1, *rest)))
        step = ",".join("1" for _ in range(2 + len(rest)))
        kept = self.put(f"slice(%{of}) begin=[{begin}] count=[{count}] step=[{step}]")
        return self.put(f"reshape(%{kept}) shape=[2,{','.join(map(str, rest))}]")

    def stacked(self, values: list[str], *rest: int) -> None:
        kept = [self.put(f"reshape(%{value}) shape=[2,1,{','.join(map(str, rest))}]") for value in values]
        self.lines.append(f'%y = concat({", ".join(f"%{name}" for name in kept)}) axis=1 // "y"')

    def graph(self, outs: str = "%y", more: str = "") -> Graph:
        text = "\n          ".join(self.lines)
        given = f"%a: f32[2,{self.steps},3], %b: f32[2,{self.steps},3], %m: f32[2,{self.steps},3,4], "
        given += f"%c: f32[2,{self.steps},4], %s0: f32[2,3], %t0: f32[2,3,4]"
        return graph(f"""
        graph g batch=2 ({given}) -> ({outs}) {{
          {more}
          {text}
        }}""")


def scans(after: Graph) -> list[StateScan]:
    return [node.op for node in after.nodes if isinstance(node.op, StateScan)]


def first_order(loop: Loop, order: range) -> dict[int, str]:
    state, made = "s0", {}
    for step in order:
        scaled = loop.put(f"mul(%{loop.cut('a', step, 3)}, %{state})")
        state = made[step] = loop.put(f"add(%{scaled}, %{loop.cut('b', step, 3)})")
    return made


def test_a_first_order_recurrence_is_one_operator() -> None:
    loop = Loop()
    made = first_order(loop, range(STEPS))
    loop.stacked([made[step] for step in range(STEPS)], 3)
    result = run(RECOGNISE_SCANS, loop.graph())
    (op,) = scans(result.graph)
    assert (op.extents, op.functions, op.carried, op.fold) == ((6, 2, 3), ("mul", "add"), (4,), 0)
    assert op.axes == ((1, 0, 2), (1, 0, 2), (-1, 0, 1))
    assert op.order == (1, 0, 2)
    assert [node.op.kind for node in result.graph.nodes] == ["state_scan", "reshape"]
    assert said(result) == [("y", WORDS, "6 steps of 2 functions and 1 state")]


def test_it_may_go_from_the_end() -> None:
    loop = Loop()
    made = first_order(loop, range(STEPS - 1, -1, -1))
    loop.stacked([made[step] for step in range(STEPS)], 3)
    (op,) = scans(run(RECOGNISE_SCANS, loop.graph()).graph)
    assert op.backward == (True, True, False, True)


def test_both_directions_of_one_tensor_are_two() -> None:
    loop = Loop()
    forth, back = first_order(loop, range(STEPS)), first_order(loop, range(STEPS - 1, -1, -1))
    both = [loop.put(f"concat(%{forth[step]}, %{back[step]}) axis=1") for step in range(STEPS)]
    loop.stacked([forth[step] for step in range(STEPS)], 3)
    lines = [line.replace("%y =", "%z =").replace('// "y"', '// "z"') for line in loop.lines if both[0] not in line]
    loop.lines = [line for line in lines if not any(f"%{name} =" in line for name in both)]
    loop.stacked([back[step] for step in range(STEPS)], 3)
    assert [op.backward[-1] for op in scans(run(RECOGNISE_SCANS, loop.graph("%y, %z")).graph)] == [False, True]


def test_the_last_state_alone_may_be_read() -> None:
    loop = Loop()
    made = first_order(loop, range(STEPS))
    loop.lines.append(f'%y = exp(%{made[STEPS - 1]}) // "y"')
    result = run(RECOGNISE_SCANS, loop.graph())
    assert [node.op.kind for node in result.graph.nodes] == ["state_scan", "slice", "reshape", "activation"]


def mamba(loop: Loop, sums: Callable[[Loop, str, str], str]) -> None:
    """A state [2, 3, 4] that decays by %m, whose elements %c weighs."""
    state, made = "t0", []
    for step in range(STEPS):
        scaled = loop.put(f"mul(%{loop.cut('m', step, 3, 4)}, %{state})")
        into = loop.put(f"reshape(%{loop.cut('a', step, 3)}) shape=[2,3,1]")
        state = loop.put(f"add(%{scaled}, %{into})")
        made.append(sums(loop, state, loop.cut("c", step, 4)))
    loop.stacked(made, 3)


def by_reduce(loop: Loop, state: str, weights: str) -> str:
    row = loop.put(f"reshape(%{weights}) shape=[2,1,4]")
    product = loop.put(f"mul(%{state}, %{row})")
    return loop.put(f"reduce(%{product}) mode=sum axes=[2] keepdims=false")


def by_product(loop: Loop, state: str, weights: str) -> str:
    column = loop.put(f"reshape(%{weights}) shape=[2,4,1]")
    product = loop.put(f"matmul(%{state}, %{column})")
    return loop.put(f"reshape(%{product}) shape=[2,3]")


def by_row(loop: Loop, state: str, weights: str) -> str:
    row = loop.put(f"reshape(%{weights}) shape=[2,1,4]")
    turned = loop.put(f"transpose(%{state}) perm=[0,2,1]")
    product = loop.put(f"matmul(%{row}, %{turned})")
    return loop.put(f"reshape(%{product}) shape=[2,3]")


@pytest.mark.parametrize("sums", [by_reduce, by_product, by_row])
def test_what_a_state_is_added_up_with_is_part_of_a_step(sums: Callable[[Loop, str, str], str]) -> None:
    loop = Loop()
    mamba(loop, sums)
    (op,) = scans(run(RECOGNISE_SCANS, loop.graph()).graph)
    assert op.extents[op.fold] == 4
    assert op.functions[-1] == "sum"
    assert op.order == (1, 0, 2)
    assert sorted(op.functions) == ["add", "mul", "mul", "sum"]


def test_an_outer_product_goes_into_a_state_and_sums_of_it_too() -> None:
    loop, state, made = Loop(), "t0", list[str]()
    for step in range(STEPS):
        key = loop.put(f"reshape(%{loop.cut('c', step, 4)}) shape=[2,1,4]")
        had = loop.put(f"matmul(%{state}, %{key}) transpose_b=true")
        column = loop.put(f"reshape(%{loop.cut('a', step, 3)}) shape=[2,3,1]")
        new = loop.put(f"sub(%{column}, %{had})")
        product = loop.put(f"matmul(%{new}, %{key})")
        state = loop.put(f"add(%{state}, %{product})")
        read = loop.put(f"matmul(%{state}, %{key}) transpose_b=true")
        made.append(loop.put(f"reshape(%{read}) shape=[2,3]"))
    loop.stacked(made, 3)
    (op,) = scans(run(RECOGNISE_SCANS, loop.graph()).graph)
    assert op.functions.count("sum") == 2
    assert op.extents == (6, 2, 3, 4)
    assert op.fold == 3


def two_states(loop: Loop, wrong: int = -1) -> None:
    """A level and a trend; the step `wrong` reads the first trend."""
    level, trend, made = "s0", "s0", []
    for step in range(STEPS):
        ahead = loop.put(f"add(%{level}, %{'s0' if step == wrong else trend})")
        new = loop.put(f"mul(%{ahead}, %{loop.cut('a', step, 3)})")
        change = loop.put(f"sub(%{new}, %{level})")
        trend, level = loop.put(f"add(%{change}, %{loop.cut('b', step, 3)})"), new
        made.append(loop.put(f"max(%{level}, %{trend})"))
    loop.stacked(made, 3)


def test_there_may_be_several_states() -> None:
    loop = Loop(7)
    two_states(loop)
    (op,) = scans(run(RECOGNISE_SCANS, loop.graph()).graph)
    assert len(op.carried) == 2


@pytest.mark.parametrize("wrong", range(3, STEPS))
def test_a_step_that_reads_another_state_is_none_of_them(wrong: int) -> None:
    loop = Loop()
    two_states(loop, wrong)
    before = loop.graph()
    result = run(RECOGNISE_SCANS, before)
    assert not scans(result.graph)
    assert len(result.decisions) == 1


def test_the_step_in_front_of_the_one_in_front_is_a_state_too() -> None:
    loop, made = Loop(8), ["s0", "s0"]
    for step in range(8):
        scaled = loop.put(f"mul(%{made[-2]}, %{loop.cut('a', step, 3)})")
        total = loop.put(f"add(%{scaled}, %{made[-1]})")
        made.append(loop.put(f"sub(%{total}, %{loop.cut('b', step, 3)})"))
    loop.stacked(made[2:], 3)
    (op,) = scans(run(RECOGNISE_SCANS, loop.graph()).graph)
    assert len(op.carried) == 2
    assert op.extents[0] == 8


def test_what_came_in_a_step_before_is_a_state() -> None:
    loop, state, old, made = Loop(), "s0", "s0", list[str]()
    for step in range(STEPS):
        new = loop.cut("a", step, 3)
        scaled = loop.put(f"mul(%{state}, %{new})")
        state = loop.put(f"add(%{scaled}, %{old})")
        made.append(state)
        old = new
    loop.stacked(made, 3)
    after = run(RECOGNISE_SCANS, loop.graph()).graph
    (op,) = scans(after)
    assert len(op.carried) == 2
    assert len(op.axes) == 3
    assert op.extents[0] == STEPS
    assert [node.op.kind for node in after.nodes] == ["state_scan", "reshape"]


def test_first_steps_may_compute_something_else() -> None:
    loop = Loop()
    state = loop.cut("a", 0, 3)
    made = [state]
    for step in range(1, STEPS):
        squared = loop.put(f"mul(%{state}, %{state})")
        state = loop.put(f"max(%{squared}, %{loop.cut('a', step, 3)})")
        made.append(state)
    loop.stacked(made, 3)
    result = run(RECOGNISE_SCANS, loop.graph())
    (op,) = scans(result.graph)
    assert op.extents[0] == STEPS - 1
    assert op.begins[0] == (0, 1, 0)


def test_thresholds_are_functions_too() -> None:
    loop, state, made = Loop(), "s0", list[str]()
    for step in range(STEPS):
        scaled = loop.put(f"mul(%{state}, %leak)")
        state = loop.put(f"add(%{scaled}, %{loop.cut('a', step, 3)})")
        fires = loop.put(f"compare(%{state}, %one) question=greater")
        made.append(loop.put(f"cast(%{fires}) to=f32"))
        state = loop.put(f"where(%{fires}, %s0, %{state})")
    loop.stacked(made, 3)
    more = "const %leak: f32[] {0.5}\n          const %one: f32[] {1}"
    (op,) = scans(run(RECOGNISE_SCANS, loop.graph(more=more)).graph)
    assert sorted(op.functions) == ["add", "greater", "mul", "where"]


def test_functions_of_whole_tensors_are_computed_step_by_step_where_less_is_read_then() -> None:
    loop, state, made = Loop(), "t0", list[str]()
    column = loop.put(f"reshape(%a) shape=[2,{STEPS},3,1]")
    row = loop.put(f"reshape(%c) shape=[2,{STEPS},1,4]")
    product = loop.put(f"mul(%{column}, %{row})")
    decay = loop.put(f"exp(%{product})")
    for step in range(STEPS):
        state = loop.put(f"mul(%{loop.cut(decay, step, 3, 4)}, %{state})")
        made.append(loop.put(f"reduce(%{state}) mode=sum axes=[2] keepdims=false"))
    loop.stacked(made, 3)
    after = run(RECOGNISE_SCANS, loop.graph()).graph
    (op,) = scans(after)
    assert op.functions == ("mul", "exp", "mul", "sum")
    assert [node.inputs for node in after.nodes if node.op is op] == [("a", "c", "t0")]


@pytest.mark.parametrize("step", ["softmax(%{0}) axis=1", "matmul(%{0}, %w)"])
def test_steps_through_layers_stay(step: str) -> None:
    loop, state, made = Loop(), "s0", list[str]()
    for at in range(STEPS):
        inner = loop.put(step.format(state))
        scaled = loop.put(f"mul(%{state}, %{loop.cut('a', at, 3)})")
        state = loop.put(f"add(%{scaled}, %{inner})")
        made.append(state)
    loop.stacked(made, 3)
    more = "const %w: f32[3,3] {" + ", ".join(str(k) for k in range(9)) + "}"
    result = run(RECOGNISE_SCANS, loop.graph(more=more))
    assert not scans(result.graph)
    assert [each[2] for each in said(result)] == ["scan: a step's numbers are read by what is no step"]


def test_a_number_of_a_step_that_something_else_reads_keeps_all_of_them() -> None:
    loop = Loop()
    made = first_order(loop, range(STEPS))
    loop.lines.append(f'%z = exp(%{made[3]}) // "z"')
    loop.stacked([made[step] for step in range(STEPS)], 3)
    result = run(RECOGNISE_SCANS, loop.graph("%y, %z"))
    assert not scans(result.graph)
    assert [each[2] for each in said(result)] == ["scan: a step's numbers are read by what is no step"]


def test_slices_without_a_state_are_no_recurrence() -> None:
    loop = Loop()
    loop.stacked([loop.put(f"exp(%{loop.cut('a', step, 3)})") for step in range(STEPS)], 3)
    before = loop.graph()
    assert run(RECOGNISE_SCANS, before).graph is before


def test_the_text_reads_back_as_it_was_written() -> None:
    loop = Loop()
    mamba(loop, by_reduce)
    after = run(RECOGNISE_SCANS, loop.graph()).graph
    assert parse_graph(format_graph(after)) == after

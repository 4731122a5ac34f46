"""Covers: cheapest, with formats that agree, on graphs of every small form and families of every mind."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import graph
from planner_fakes import FAKE, HOST_TARGET, LAST, ROW, SPEC, Fake, recipe

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError
from bolt_build.families.base import Alternative, TensorFormat, same_bytes
from bolt_build.graph.ir import Graph, Layout, Node, TensorType, Value, graph_of
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.planner.resolve import Cover, resolve
from bolt_build.planner.schedule import schedule
from bolt_build.planner.space import SearchSpace, search_space

IMAGE = TensorType(DType.F32, (1, 2, 2, 2))


def space_of(of: Graph, *families: Fake) -> SearchSpace:
    return search_space(of, recipe(), SPEC, HOST_TARGET, families)


def layouts(cover: Cover) -> list[str]:
    """Layout of each chosen step's output, in order."""
    return [step.problem.outputs[0].format.layout.value for a in cover.alternatives for step in a.steps]


CHAIN = """
    graph g batch=1 (%x: f32[1,2,2,2]) -> (%y) {
      %a = relu(%x) // "a"
      %b = tanh(%a) // "b"
      %y = neg(%b) // "y"
    }"""


def test_a_conversion_is_made_where_it_pays() -> None:
    cheap_last = Fake(seconds=lambda node, layout: 1e-6 if layout is LAST else 4e-6, conversion=2e-6)
    cover = resolve(space_of(graph(CHAIN), cheap_last))
    assert layouts(cover) == ["channels_last"] * 3
    assert [(c.value, str(c.conversion.to)) for c in cover.conversions] == [
        ("x", "f32/channels_last"),
        ("y", "f32/row"),
    ]
    assert cover.seconds == cover.bound == pytest.approx(7e-6)
    assert [d.reason for d in cover.decisions] == ["predicted 7.0 us over 3 nodes with 2 conversions; exact"]


def test_and_left_out_where_it_does_not() -> None:
    cheap_last = Fake(seconds=lambda node, layout: 1e-6 if layout is LAST else 2e-6, conversion=2e-6)
    cover = resolve(space_of(graph(CHAIN), cheap_last))
    assert layouts(cover) == ["row"] * 3
    assert cover.conversions == ()


def test_one_conversion_serves_all_readers() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,2,2,2]) -> (%y) {
          %a = relu(%x) // "a"
          %b = tanh(%a) // "b"
          %c = neg(%a) // "c"
          %d = add(%b, %c) // "d"
          %y = reduce(%d) mode=mean axes=[2,3] // "y"
        }""")
    only = {"a": (ROW,), "b": (LAST,), "c": (LAST,), "d": (ROW,)}
    cover = resolve(space_of(before, Fake(layouts=lambda node: only.get(node.name, (ROW, LAST)))))
    assert [c.value for c in cover.conversions] == ["a", "b", "c"]


def test_formats_with_the_same_bytes_need_no_conversion() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,8,1,1]) -> (%y) {
          %a = relu(%x) // "a"
          %y = tanh(%a) // "y"
        }""")
    cover = resolve(
        space_of(before, Fake(layouts=lambda node: (LAST,) if node.name == "a" else (ROW,), conversion=None))
    )
    assert cover.conversions == ()


def test_formats_that_cannot_agree_are_a_diagnostic() -> None:
    stubborn = Fake(layouts=lambda node: (LAST,), conversion=None)
    with pytest.raises(BoltError) as raised:
        resolve(space_of(graph(CHAIN), stubborn))
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "no-cover"
    assert diagnostic.message == ("no choice of kernels computes the whole graph with formats that agree between them")


def test_an_equal_choice_goes_to_the_family_that_stands_first() -> None:
    first, second = Fake("first"), Fake("second")
    assert {a.family for a in resolve(space_of(graph(CHAIN), first, second)).alternatives} == {"first"}
    assert {a.family for a in resolve(space_of(graph(CHAIN), second, first)).alternatives} == {"second"}


def test_an_alternative_may_cover_several_nodes() -> None:
    """A pair of nodes in one kernel, which leaves the value between them out, where that is cheaper."""
    space = space_of(graph(CHAIN), FAKE)
    a, b = (next(alt for alt in space.alternatives if alt.region == (name,)) for name in ("a", "b"))
    step = replace(b.steps[0], inputs=("x",))
    pair = Alternative(("a", "b"), "fake", (step,), 1.5e-6)
    cover = resolve(replace(space, alternatives=(*space.alternatives, pair)))
    assert [alt.region for alt in cover.alternatives] == [("a", "b"), ("y",)]
    dear = replace(pair, seconds=2.5e-6)
    cover = resolve(replace(space, alternatives=(*space.alternatives, dear)))
    assert [alt.region for alt in cover.alternatives] == [("a",), ("b",), ("y",)]
    assert a.region == ("a",)


def test_a_value_that_is_read_elsewhere_is_not_left_out() -> None:
    before = graph(CHAIN.replace("-> (%y)", "-> (%y, %a)"))
    space = space_of(before, FAKE)
    b = next(alt for alt in space.alternatives if alt.region == ("b",))
    pair = Alternative(("a", "b"), "fake", (replace(b.steps[0], inputs=("x",)),), 0.0)
    cover = resolve(replace(space, alternatives=(*space.alternatives, pair)))
    assert [alt.region for alt in cover.alternatives] == [("a",), ("b",), ("y",)]


def test_regions_that_wait_for_each_other_are_in_no_cover_and_have_no_order() -> None:
    """One kernel for the first and the last of three nodes cannot run before the one between them, nor behind it."""
    space = space_of(graph(CHAIN), FAKE)
    a, b, y = (next(alt for alt in space.alternatives if alt.region == (name,)) for name in ("a", "b", "y"))
    around = Alternative(("a", "y"), "fake", (*a.steps, *y.steps), 0.0)
    cover = resolve(replace(space, alternatives=(*space.alternatives, around)))
    assert [alt.region for alt in cover.alternatives] == [("a",), ("b",), ("y",)]
    with pytest.raises(ValueError) as raised:
        schedule(space, replace(cover, alternatives=(around, b)), HOST_TARGET)
    assert str(raised.value) == "'a' is read before it is made: regions of the cover wait for each other"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to five unary and binary nodes over values made before them; the last value and some others are outputs."""
    names, nodes, values = ["x"], [], [Value("x", IMAGE)]
    for index in range(draw(st.integers(1, 5))):
        sources = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
        op = Binary("add") if len(sources) == 2 else Activation("relu")
        name = f"n{index}"
        nodes.append(Node(name, op, tuple(sources), (name,), covers=(name,)))
        values.append(Value(name, IMAGE))
        names.append(name)
    read = {name for node in nodes for name in node.inputs}
    outputs = [name for name in names[1:] if name not in read or draw(st.booleans())]
    return graph_of("g", 1, ["x"], outputs, values, nodes)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    of = draw(graphs())
    cost = st.integers(0, 4).map(lambda micro: micro * 1e-6)
    costs = {(node.name, layout): draw(cost) for node in of.nodes for layout in Layout}
    accepted = {node.name: draw(st.sampled_from([(ROW,), (LAST,), (ROW, LAST)])) for node in of.nodes}
    odd = Fake(
        layouts=lambda node: accepted[node.name], seconds=lambda node, layout: costs[node.name, layout],
        conversion=draw(cost),
    )  # fmt: skip
    families = [odd, Fake("even", seconds=lambda node, layout: 3e-6)][: draw(st.integers(1, 2))]
    return space_of(of, *families)


def cost_of(space: SearchSpace, chosen: tuple[Alternative, ...]) -> float:
    """Seconds of a choice of one alternative a node, with the conversions it needs."""
    held = dict(space.fixed)
    wanted: dict[str, set[TensorFormat]] = {}
    for name, format in space.wanted:
        wanted.setdefault(name, set()).add(format)
    for alternative in chosen:
        (step,) = alternative.steps
        held[step.outputs[0]] = step.problem.outputs[0].format
        for name, operand in zip(step.inputs, step.problem.inputs, strict=True):
            wanted.setdefault(name, set()).add(operand.format)
    seconds = sum(alternative.seconds for alternative in chosen)
    for name, formats in wanted.items():
        for format in formats:
            if not same_bytes(IMAGE.shape, held[name], format):
                offers = [c.seconds for c in space.conversions if (c.source, c.to) == (held[name], format)]
                seconds += min(offers, default=inf)
    return seconds


def brute_force(space: SearchSpace) -> float:
    options = [[a for a in space.alternatives if a.region == (node.name,)] for node in space.graph.nodes]
    return min(cost_of(space, chosen) for chosen in itertools.product(*options))


@settings(max_examples=60, deadline=None)
@given(spaces())
def test_the_cover_is_the_cheapest_of_all(space: SearchSpace) -> None:
    cover = resolve(space)
    assert cover.seconds == cover.bound == pytest.approx(brute_force(space), abs=1e-11)
    assert cost_of(space, cover.alternatives) == pytest.approx(cover.seconds, abs=1e-11)


@settings(max_examples=60, deadline=None)
@given(spaces())
def test_beyond_the_cap_the_bound_is_reported(space: SearchSpace) -> None:
    cover = resolve(space, cap=4)
    best = brute_force(space)
    assert cover.bound <= best + 1e-11
    assert cover.seconds >= best - 1e-11
    assert cost_of(space, cover.alternatives) <= cover.seconds + 1e-11
    if cover.seconds > cover.bound:
        (decision,) = cover.decisions
        assert decision.action == "chose a cover within a bound"
        assert decision.reason.endswith("exactness given up beyond the table cap")

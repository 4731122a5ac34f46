"""The arena: no two live buffers overlap, whatever the order of steps allows to run at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import graph
from planner_fakes import FAKE, HOST_TARGET, SPEC, Fake, recipe

from bolt_build.graph.ir import Graph
from bolt_build.planner.memory import ALIGNMENT, Arena, Buffer, aligned, ancestors, live_peak, pack, plan_memory
from bolt_build.planner.resolve import resolve
from bolt_build.planner.schedule import Schedule, schedule
from bolt_build.planner.space import search_space


@st.composite
def orders(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """For up to a dozen steps, which earlier ones each waits for."""
    count = draw(st.integers(1, 12))
    return [tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else () for i in range(count)]


@st.composite
def loads(draw: st.DrawFn) -> tuple[list[Buffer], list[int]]:
    """Buffers over a partial order: each is read only by steps ordered behind one that writes it, or a part of it."""
    order = ancestors(draw(orders()))
    buffers = []
    for _ in range(draw(st.integers(0, 10))):
        writers = draw(st.sets(st.integers(0, len(order) - 1), min_size=1, max_size=2))
        behind = [step for step in range(len(order)) if any(order[step] >> writer & 1 for writer in writers)]
        readers = draw(st.sets(st.sampled_from(behind), max_size=3)) if behind else set()
        touched = tuple(sorted({*writers, *readers}))
        buffers.append(Buffer(draw(st.integers(1, 1000)), touched[0], touched))
    return buffers, order


def runs_before(a: int, b: int, order: list[int]) -> bool:
    return bool(order[b] >> a & 1)


def may_coexist(a: Buffer, b: Buffer, order: list[int]) -> bool:
    """Straight from the definition: some step of each is not known to stand on the right side of one of the other's."""
    a_first = all(runs_before(step, other, order) for step in a.touched for other in b.touched)
    b_first = all(runs_before(step, other, order) for step in b.touched for other in a.touched)
    return not (a_first or b_first)


@settings(max_examples=200, deadline=None)
@given(loads())
def test_no_two_live_buffers_overlap(load: tuple[list[Buffer], list[int]]) -> None:
    buffers, order = load
    offsets, nbytes = pack(buffers, order)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert nbytes >= live_peak(buffers, len(order))
    for i, a in enumerate(buffers):
        assert 0 <= offsets[i] <= nbytes - a.nbytes
        for j, b in enumerate(buffers[:i]):
            if may_coexist(a, b, order):
                assert offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i]


def test_steps_that_may_run_at_once_get_memory_of_their_own() -> None:
    """Two branches of one root: ordered by nothing, although one stands first."""
    buffers = [Buffer(64, 1, (1, 2)), Buffer(64, 3, (3, 4))]
    total_order, branches = [(), (0,), (1,), (2,), (3,)], [(), (0,), (1,), (0,), (3,)]
    assert pack(buffers, ancestors(total_order)) == ([0, 0], 64)
    assert sorted(pack(buffers, ancestors(branches))[0]) == [0, 64]


def test_a_chain_needs_two_buffers() -> None:
    chain = [Buffer(1000, i, (i, i + 1)) for i in range(6)]
    order = ancestors([(i - 1,) if i else () for i in range(7)])
    assert pack(chain, order)[1] == 2 * aligned(1000)
    assert live_peak(chain, 7) == 2000


def planned(of: Graph, family: Fake = FAKE, queues: int = 1) -> tuple[Schedule, Arena]:
    from dataclasses import replace

    target = replace(HOST_TARGET, queues=queues)
    space = search_space(of, recipe(), SPEC, target, [family])
    steps = schedule(space, resolve(space), target)
    return steps, plan_memory(steps)


def offsets_of(steps: Schedule, arena: Arena) -> dict[str, int | None]:
    return {t.value: arena.offsets[t.storage] for step in steps.steps for t in step.outputs}


def test_an_elementwise_step_writes_over_its_dying_input() -> None:
    steps, arena = planned(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %b = relu(%a) // "b"
          %y = matmul(%b, %w) // "y"
        }""")
    )
    places = offsets_of(steps, arena)
    assert places["a"] == places["b"] == 0
    assert arena.nbytes == arena.live_peak == 64


def test_but_not_over_one_that_is_read_again() -> None:
    steps, arena = planned(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %b = relu(%a) // "b"
          %y = matmul(%b, %a) // "y"
        }""")
    )
    places = offsets_of(steps, arena)
    assert places["a"] != places["b"]
    assert arena.live_peak == 128


def with_residual_in_place(before: Graph) -> dict[str, int | None]:
    """Where the values lie if only step "b" may share: its third input's memory with its output."""
    from dataclasses import replace

    space = search_space(before, recipe(), SPEC, HOST_TARGET, [FAKE])
    in_place = tuple(
        replace(a, steps=tuple(replace(s, may_share=((2, 0),) if s.outputs == ("b",) else ()) for s in a.steps))
        for a in space.alternatives
    )
    steps = schedule(space, resolve(replace(space, alternatives=in_place)), HOST_TARGET)
    return offsets_of(steps, plan_memory(steps))


def test_nor_over_one_that_the_kernel_also_reads_out_of_place() -> None:
    """The same tensor as data and as residual: overwriting one would spoil the other."""
    places = with_residual_in_place(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %b = matmul(%a, %w, %a) | add(%a@2) // "b"
          %y = relu(%b) // "y"
        }""")
    )
    assert places["a"] != places["b"]


def test_nor_over_a_view_of_one_that_the_kernel_reads_out_of_place() -> None:
    """The residual has a name of its own, but its bytes are the data's."""
    places = with_residual_in_place(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %r = reshape(%a) shape=[4,4] // "r"
          %b = matmul(%a, %w, %r) | add(%r@2) // "b"
          %y = relu(%b) // "y"
        }""")
    )
    assert places["r"] == places["a"] != places["b"]


def test_but_over_a_view_of_one_that_is_read_no_more() -> None:
    places = with_residual_in_place(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %r = reshape(%a) shape=[4,4] // "r"
          %b = matmul(%x, %w, %r) | add(%r@2) // "b"
          %y = relu(%b) // "y"
        }""")
    )
    assert places["r"] == places["a"] == places["b"]


def test_branches_on_several_queues_do_not_share() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %b = matmul(%a, %w) // "b"
          %c = matmul(%x, %x) // "c"
          %d = matmul(%c, %w) // "d"
          %y = matmul(%b, %d) // "y"
        }""")
    _, one = planned(before, queues=1)
    _, many = planned(before, queues=4)
    assert (one.nbytes, many.nbytes) == (192, 256)


def test_a_view_lies_where_its_source_lies() -> None:
    steps, arena = planned(
        graph("""
        graph g batch=1 (%x: f32[4,4]) -> (%y) {
          const %w: f32[4,4] #
          %a = matmul(%x, %w) // "a"
          %b = reshape(%a) shape=[16] // "b"
          %c = reshape(%b) shape=[2,8] // "c"
          %y = relu(%c) // "y"
        }""")
    )
    places = offsets_of(steps, arena)
    assert places["a"] == places["b"] == places["c"] == 0
    assert arena.nbytes == 64

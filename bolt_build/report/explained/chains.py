"""Products, or a convolution and a pooling, that one kernel can compute together: what that saves, what it costs, and
what became of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bolt_build.families.reason import within
from bolt_build.graph.ir import Graph
from bolt_build.graph.patterns.chains import chains_in, inverted_in, normed_in
from bolt_build.graph.patterns.gates import gated_in
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.planner.persistent import ChainOutcome
from bolt_build.report.brief import wrapped
from bolt_build.report.explained.problem_words import in_words
from bolt_build.report.reasons import Counted, counted
from bolt_build.report.tables import Column, byte_text, table
from bolt_build.sizes import Sizes, sizes_of
from bolt_build.targets import Target


@dataclass(frozen=True)
class Split:
    """Where the gain of one kernel comes from, in microseconds: gain = traffic + launch - lost.

    `traffic` is what writing and reading the `nbytes` that lie between takes at the target's bandwidth, `launch` what
    the launches behind the first one take, and `lost` the rest: whole rows keep a block from other shapes, the second
    product waits for the first, and what a pooling counts twice or a window's neighbours need may be computed twice.
    Below 0 where one kernel fills the machine better than two.
    """

    gain: float
    nbytes: int
    traffic: float
    launch: float
    lost: float


@dataclass(frozen=True)
class ShownChain:
    """Two products, or a convolution and a pooling: the nodes, and microseconds in one kernel and apart (None where a
    node has no such kernel). Those in `measured` were measured, in that order, the others predicted. `wish` is what the
    recipe says of them. There is no split where some of the times were measured and others were not."""

    nodes: tuple[str, ...]
    words: str
    fused: bool
    wish: str
    together: float
    apart: tuple[float | None, ...]
    measured: tuple[bool, ...]
    split: Split | None
    reason: str


@dataclass(frozen=True)
class Chains:
    """Of one batch: those that one kernel may compute; and, counted by reason, those that none can or may. `bandwidth`
    is the target's, in bytes/s."""

    legal: tuple[ShownChain, ...]
    illegal: tuple[Counted, ...]
    bandwidth: float


def chains_of(graph: Graph, plan: EnginePlan, found: Sequence[ChainOutcome], target: Target) -> Chains:
    """What became of the products and poolings that follow each other in an optimised graph."""
    here = tuple(_shown(each, target) for each in found if sizes_of(each) == sizes_of(graph))
    possible = {", ".join(each.region) for each in chains_in(graph)} if target.gpu is not None else set()
    if target.gpu is not None:
        possible |= {", ".join(each.region) for each in (*inverted_in(graph), *normed_in(graph))}
        possible |= {", ".join(each.region) for each in gated_in(graph)}
    apart = possible - {", ".join(each.nodes) for each in here}
    reasons = [within(each.family, each.reason) for each in plan.refusals if each.what in apart]
    return Chains(here, counted(reasons), target.bandwidth)


def _shown(found: ChainOutcome, target: Target) -> ShownChain:
    chain = found.chain
    together = found.seconds * 1e6
    apart = tuple(None if seconds is None else seconds * 1e6 for seconds in found.apart_seconds)
    return ShownChain(
        chain.region, in_words(chain.problem), found.fused, chain.wish, together, apart, found.measured,
        _split(found, together, apart, target), found.reason,
    )  # fmt: skip


def _split(found: ChainOutcome, together: float, apart: Sequence[float | None], target: Target) -> Split | None:
    # A prediction and a measurement do not compare.
    if any(time is None for time in apart) or len(set(found.measured)) > 1:
        return None
    gain = sum(time for time in apart if time is not None) - together
    # What lies between is neither written nor read; what is an output as well is not read.
    before = [each for each, time in zip(found.chain.apart[:-1], apart, strict=False) if time]  # without views
    op = found.chain.problem.op
    stored = before[-1].outputs[0].nbytes if op.keeps else 0
    nbytes = 2 * sum(each.outputs[0].nbytes for each in before) - stored
    traffic, launch = nbytes / target.bandwidth * 1e6, len(before) * target.launch_seconds * 1e6
    return Split(gain, nbytes, traffic, launch, traffic + launch - gain)


_COLUMNS = (
    Column("first", name=True), Column("then", name=True), Column("computes", name=True, spare=2),
    Column("one kernel", right=True), Column("apart", right=True), Column("gain", right=True),
    Column("traffic", right=True, spare=1), Column("launch", right=True, spare=1),
    Column("lost", right=True, spare=1), Column("became"),
)  # fmt: skip
_LEGEND = "gain = traffic between them at {rate} + a launch - what one kernel loses; us, ~ predicted"


def render_chains(sizes: Sizes, found: Chains | None, width: int | None) -> list[str]:
    """A table of the chains of a batch with the reasons of those that stayed apart; nothing where there are none."""
    if found is None or not (found.legal or found.illegal):
        return []
    fused = sum(each.fused for each in found.legal)
    lines = ["", f"{sizes}: fused {fused} of {len(found.legal)} chains that one kernel can compute"]
    if found.legal:
        lines.append(_LEGEND.format(rate=_rate(found.bandwidth)))
        lines += [line.plain for line in table(_COLUMNS, [_row(each) for each in found.legal], width)]
        apart = [f"  {' then '.join(each.nodes)}: {each.reason}" for each in found.legal if not each.fused]
        lines += wrapped(apart, width)
    if found.illegal:
        lines.append("chains left apart:")
        lines += wrapped([f"  {each.count} {each.reason}" for each in found.illegal], width)
    return lines


def of_nodes(found: Chains | None, nodes: Collection[str]) -> list[str]:
    """A line for each chain that some of the nodes are of."""
    if found is None:
        return []
    return [_line(each, found.bandwidth) for each in found.legal if any(node in nodes for node in each.nodes)]


def _line(found: ShownChain, bandwidth: float) -> str:
    text = f"{' and '.join(found.nodes)} {'in one kernel' if found.fused else 'apart'}: {found.reason}"
    if found.split is None:
        return text
    s = found.split
    traffic = f"traffic {s.traffic:.2f} ({byte_text(s.nbytes)} at {_rate(bandwidth)})"
    return f"{text}; gain {s.gain:+.2f} us: {traffic}, launch {s.launch:.2f}, lost {s.lost:.2f}"


def _rate(bandwidth: float) -> str:
    return f"{bandwidth / 1e12:.2f} TB/s"


def _row(each: ShownChain) -> tuple[str, ...]:
    times = [_time(time, how) for time, how in zip((each.together, *each.apart), each.measured, strict=True)]
    became = "fused" if each.fused else "apart"
    if each.wish != "auto":
        became += f" ({each.wish})"
    split, s = [""] * 4, each.split
    if s is not None:
        split = [f"{s.gain:+.2f}", f"{s.traffic:.2f}", f"{s.launch:.2f}", f"{s.lost:.2f}"]
    return (each.nodes[0], each.nodes[-1], each.words, times[0], " + ".join(times[1:]), *split, became)


def _time(time: float | None, measured: bool) -> str:
    if time is None:
        return "none"
    return f"{time:.2f}" if measured else f"~{time:.2f}"

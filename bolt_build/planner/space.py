"""The search space: every way the kernel families have to compute a graph, and every conversion between formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.errors import BoltError
from bolt_build.families.base import (
    Alternative,
    Candidate,
    Family,
    KernelProblem,
    Operand,
    Refusal,
    TensorFormat,
    same_bytes,
)
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.onnx_model.onnx_findings import listed
from bolt_build.graph.ops.moves.shape import Convert, Identity
from bolt_build.planner.angles import angles, places
from bolt_build.planner.counts import counts
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.kernel_sources import Declined
from bolt_build.planner.layer_wishes import reaches
from bolt_build.planner.no_kernel import no_kernel
from bolt_build.planner.padding import PaddingLimits
from bolt_build.planner.persistent import OfferedChain, Wishes, chains_of, enforce, wishes
from bolt_build.planner.waiting import refuse_wait
from bolt_build.schema.recipe import IoSpec, Recipe, TargetSpec
from bolt_build.targets import Target
from bolt_build.wording import many


@dataclass(frozen=True)
class Choice:
    """The candidates that a family has for a problem, best predicted first, never empty."""

    family: str
    problem: KernelProblem
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Conversion:
    """A kernel that rewrites a tensor of `shape` from one format to another in `seconds`."""

    shape: tuple[int, ...]
    source: TensorFormat
    to: TensorFormat
    family: str
    problem: KernelProblem
    seconds: float


@dataclass(frozen=True)
class SearchSpace:
    """Everything `resolve` chooses from.

    `fixed` are the formats of graph inputs, `wanted` those of graph outputs. `copies` are kernels that write a tensor
    in the format it has to another place, for outputs that no step can write directly. `basis` says where the seconds
    come from: "predicted", "measured", or "measured and predicted". `chains` are what one kernel could compute of
    several nodes, whether or not the recipe leaves a choice. `declined` is what a selection says of the whole and does
    not hold here.
    """

    graph: Graph
    alternatives: tuple[Alternative, ...]
    conversions: tuple[Conversion, ...]
    copies: tuple[Conversion, ...]
    fixed: tuple[tuple[str, TensorFormat], ...]
    wanted: tuple[tuple[str, TensorFormat], ...]
    choices: tuple[Choice, ...]
    refusals: tuple[Refusal, ...]
    decisions: tuple[Decision, ...]
    basis: str = "predicted"
    chains: tuple[OfferedChain, ...] = ()
    declined: tuple[Declined, ...] = ()


def search_space(
    graph: Graph, recipe: Recipe, spec: TargetSpec, target: Target, families: Sequence[Family]
) -> SearchSpace:
    """Asks every family about every node. Raises BoltError ("no-kernel") naming each node that none can compute."""
    precisions, decisions = _precisions(graph, recipe, spec)
    asked, reached = wishes(graph, recipe, precisions)
    padding = PaddingLimits(graph.nodes, recipe, target)
    collector = _Collector(graph, target, families, asked, padding)
    answers = [(node, collector.ask(node, each)) for node, each in zip(graph.nodes, precisions, strict=True)]
    missing = [(node, reasons) for node, reasons in answers if reasons is not None]
    if missing:
        raise BoltError(no_kernel(graph, missing, recipe, spec, target))
    chains = chains_of(collector.alternatives, asked)
    collector.alternatives, enforced = enforce(graph, collector.alternatives, collector.refusals, asked, target.name)
    fixed = tuple((name, io_format(graph, name, recipe.engine.io)) for name in graph.inputs)
    wanted = tuple((name, io_format(graph, name, recipe.engine.io)) for name in graph.outputs)
    conversions = collector.conversions(fixed, wanted)
    copies = tuple(dict.fromkeys(copy for name, to in wanted for copy in collector.copies(name, to)))
    return SearchSpace(
        graph, tuple(collector.alternatives), conversions, copies, fixed, wanted,
        tuple(collector.choices.values()), tuple(dict.fromkeys(collector.refusals)),
        (*decisions, *reached, *padding.decisions, *enforced), chains=chains,
    )  # fmt: skip


def io_format(graph: Graph, name: str, io: IoSpec) -> TensorFormat:
    """The format in which the caller gives or takes a graph input or output."""
    type = graph.type(name)
    dtype = type.dtype if io.dtype == "model" or not type.dtype.is_float else PRECISIONS[io.dtype]
    last = io.layout == "channels_last" and type.rank >= 3
    return TensorFormat(dtype, Layout.CHANNELS_LAST if last else Layout.ROW)


def problems_of(alternative: Alternative) -> tuple[KernelProblem, ...]:
    """The problems of an alternative that need a kernel."""
    return tuple(step.problem for step in alternative.steps if not step.view)


def _precisions(graph: Graph, recipe: Recipe, spec: TargetSpec) -> tuple[tuple[DType, ...], tuple[Decision, ...]]:
    """The storage type of each node, and a line for each layer glob: what it reached."""
    exact, decisions = set[str](), []
    if spec.precision in ("fp16", "bf16"):
        for found, reason in (
            (angles(graph), "sines and cosines are of angles that inputs give"),
            (places(graph), "images are sampled at these places"),
            (counts(graph), "whole numbers are computed, or asked about"),
        ):
            names = [node.name for node in graph.nodes if node.name in found and node.name not in exact]
            exact.update(names)
            if names:
                decisions.append(Decision("precision", listed(names), "set precision fp32", reason))
    chosen = ["fp32" if node.name in exact else spec.precision for node in graph.nodes]
    for index, layer in enumerate(recipe.layers):
        if layer.precision is None:
            continue
        reached = 0
        for at, node in enumerate(graph.nodes):
            if reaches(layer.match, node):
                chosen[at] = layer.precision
                reached += 1
        subject = f"layers[{index}]"
        if reached:
            action, reason = f"set precision {layer.precision}", f"'{layer.match}' matches {many(reached, 'node')}"
        else:
            action, reason = "declined", f"'{layer.match}' matches no node of the optimised graph"
        decisions.append(Decision("precision", subject, action, reason))
    return tuple(PRECISIONS[name] for name in chosen), tuple(decisions)


class _Collector:
    """Gathers alternatives, candidates and conversions of one graph."""

    def __init__(
        self, graph: Graph, target: Target, families: Sequence[Family], asked: Wishes, padding: PaddingLimits
    ) -> None:
        self._asked = asked
        self._padding = padding
        self._graph = graph
        self._target = target
        self._families = families
        self._places = {node.name: place for place, node in enumerate(graph.nodes)}
        self.alternatives: list[Alternative] = []
        self._covered: set[str] = set()
        self.refusals: list[Refusal] = []
        self.choices: dict[tuple[str, KernelProblem], Choice] = {}
        self._rejected: dict[tuple[str, KernelProblem], str] = {}
        self._conversions: dict[tuple[tuple[int, ...], TensorFormat, TensorFormat], Conversion | None] = {}

    def ask(self, node: Node, precision: DType) -> list[str] | None:
        """None where a family has an alternative for the node, otherwise each family's reasons."""
        reasons, found = [], node.name in self._covered
        for family in self._families:
            alternatives, refusals = family.propose(self._graph, node, self._target, precision)
            self.refusals += refusals
            reasons += [f"{refusal.family}: {refusal.reason}" for refusal in refusals]
            for alternative in [self._padding.applied(family, each) for each in alternatives]:
                missing = (self._asked.refuse if alternative.apart else self._asked.mixed)(alternative.region)
                missing = missing or refuse_wait(self._graph, self._places, alternative)
                missing = missing or self._without_candidate(family, alternative)
                if missing is None:
                    self.alternatives.append(alternative)
                    self._covered.update(alternative.region)
                    found = True
                else:
                    self.refusals.append(Refusal(family.name, ", ".join(alternative.region), missing))
                    reasons.append(f"{family.name}: {missing}")
            if not alternatives and not refusals:
                reasons.append(f"{family.name}: proposes nothing and gives no reason")
        return None if found else list(dict.fromkeys(reasons))

    def _without_candidate(self, family: Family, alternative: Alternative) -> str | None:
        """Why a problem of the alternative has no legal candidate; None where all have one."""
        for problem in problems_of(alternative):
            missing = self._choose(family, problem)
            if missing is not None:
                return missing
        return None

    def _choose(self, family: Family, problem: KernelProblem) -> str | None:
        key = (family.name, problem)
        if key not in self.choices and key not in self._rejected:
            candidates, refusals = family.candidates(problem, self._target)
            if candidates:
                self.choices[key] = Choice(family.name, problem, candidates)
            else:
                reason = "; ".join(refusal.reason for refusal in refusals) or "gives no reason"
                self._rejected[key] = f"no legal candidate: {reason}"
        return self._rejected.get(key)

    def conversions(self, *borders: tuple[tuple[str, TensorFormat], ...]) -> tuple[Conversion, ...]:
        """Every conversion that a value of the graph could need between the formats it may have."""
        formats: dict[str, dict[TensorFormat, None]] = {}
        for name, format in (pair for border in borders for pair in border):
            formats.setdefault(name, {})[format] = None
        for alternative in self.alternatives:
            for step in alternative.steps:
                operands = (*step.problem.inputs, *step.problem.outputs)
                for name, operand in zip((*step.inputs, *step.outputs), operands, strict=True):
                    formats.setdefault(name, {})[operand.format] = None
        for name, found in formats.items():
            shape = self._graph.type(name).shape if self._graph.has(name) else None
            if shape is None or (self._graph.constant(name) is not None and name not in self._graph.outputs):
                continue
            for source in found:
                for to in found:
                    if not same_bytes(shape, source, to):
                        self._convert(shape, source, to)
        return tuple(c for c in self._conversions.values() if c is not None)

    def copies(self, name: str, to: TensorFormat) -> tuple[Conversion, ...]:
        """The kernel that writes a graph output from where the same bytes (row-major ones of a constant) stand."""
        shape = self._graph.type(name).shape
        constant = self._graph.constant(name) is not None
        source = TensorFormat(to.dtype, Layout.ROW) if constant else to
        op = Identity() if same_bytes(shape, source, to) else Convert()
        operands = Operand(shape, source, constant), Operand(shape, to)
        problem = KernelProblem(op, operands[:1], operands[1:], (), to.dtype, self._target.name)
        for family in self._families:
            if self._choose(family, problem) is None:
                return (Conversion(shape, source, to, family.name, problem, problem.nbytes / self._target.bandwidth),)
        return ()

    def _convert(self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat) -> None:
        key = (shape, source, to)
        if key in self._conversions:
            return
        best: Conversion | None = None
        for family in self._families:
            offer = family.propose_conversion(shape, source, to, self._target)
            if offer is None or self._choose(family, offer[0]) is not None:
                continue
            if best is None or offer[1] < best.seconds:
                best = Conversion(shape, source, to, family.name, offer[0], offer[1])
        self._conversions[key] = best

"""Families of one rule an operator; the portable family: every operator, both layouts, with no library
behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from bolt_build.dtypes import DType
from bolt_build.families.base import (
    Alternative,
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    Operand,
    ProposedStep,
    Refusal,
    StepCode,
    StepExpressions,
    TensorFormat,
    rate,
    same_bytes,
)
from bolt_build.families.common.cost import OVERLAPPED, moved, roofline
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.problems import problem_of
from bolt_build.families.common.refusals import refuse_unoffered
from bolt_build.families.common.stages import Reach, may_share, spreads
from bolt_build.families.portable.form import AnyForm
from bolt_build.families.portable.kernels import RULES
from bolt_build.families.portable.kernels.elementwise.formula import joined
from bolt_build.families.portable.kernels.norms.row_sum import summed
from bolt_build.families.portable.kernels.places.places import topped
from bolt_build.families.portable.kernels.products.placed_products import mixing
from bolt_build.families.portable.kernels.products.squeeze import squeezed
from bolt_build.families.portable.kernels.reductions.folded_formula import folded
from bolt_build.families.portable.plain import DIRECT
from bolt_build.families.portable.rule import Rule, in_single
from bolt_build.families.portable.typed import is_computed
from bolt_build.graph.ir import Graph, Layout, Node, Op
from bolt_build.graph.ops.moves.shape import Convert, Reshape
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul
from bolt_build.targets import Target


def _is_empty(problem: KernelProblem) -> bool:
    """Whether there is nothing to compute."""
    return not any(operand.type.elements for operand in problem.outputs)


def _seconds(rule: Rule, problem: KernelProblem, target: Target) -> float:
    if _is_empty(problem):
        return OVERLAPPED * target.launch_seconds
    efficiency = rule.efficiency(problem)
    if target.gpu is None:
        return roofline(problem, target, efficiency)
    if rule.gpu_seconds is not None:
        return rule.gpu_seconds(problem, target)
    if rule.gpu_single is not None and in_single(problem):
        efficiency = rule.gpu_single(problem)
    elif rule.gpu_efficiency is not None:
        efficiency = rule.gpu_efficiency
    arithmetic = problem.flops / (rate(problem, target) * efficiency)
    memory = moved(problem.nbytes, target) / rule.gpu_bandwidth(problem)
    return max(memory, arithmetic) + OVERLAPPED * target.launch_seconds + rule.gpu_latency(problem)


def _refuse(rule: Rule, problem: KernelProblem, target: Target) -> str | None:
    """Why the target has no kernel of the rule for the problem, None where it has."""
    reason = rule.refuse(problem)
    return rule.refuse_gpu(problem, target.gpu) if reason is None and target.gpu is not None else reason


def _reads_apart(rule: Rule, problem: KernelProblem, target: Target) -> tuple[int, ...]:
    """The inputs whose rows may lie apart."""
    found = {*rule.reads_apart(problem)}
    if rule.stages_apart and target.gpu is not None and is_computed(problem) and len(problem.outputs[0].shape) > 1:
        for stage, how in zip(problem.epilogue, spreads(problem), strict=True):
            if stage.operand is not None and how is not None and how.reach is Reach.SAME:
                found |= set() if problem.inputs[stage.operand].constant else {stage.operand}
    return tuple(sorted(found))


def _is_pitched(rule: Rule, problem: KernelProblem, target: Target) -> bool:
    """Whether rows of the output may lie apart."""
    return rule.pitched(problem) or (target.gpu is not None and rule.gpu_pitched(problem))


def _refused_forms(rule: Rule, problem: KernelProblem, target: Target) -> list[str]:
    """Why a GPU has no kernel of forms that are for such problems."""
    if target.gpu is None or _is_empty(problem):
        return []
    reasons = [form.refuse_problem(problem, target.gpu) for form in rule.forms if form.serves(problem)]
    return [reason for reason in reasons if reason is not None]


def _as_the_model_has_it(graph: Graph, node: Node, problem: KernelProblem) -> KernelProblem | None:
    """The problem of a node that makes a graph output with its result stored in the model's element type, so that
    nothing has to convert it; None where it is anyway, or the node makes no such output."""
    (name, *more), (output, *_) = node.outputs, problem.outputs
    own = TensorFormat(graph.type(name).dtype, output.format.layout)
    if more or name not in graph.outputs or own.dtype not in COMPUTED or output.format == own:
        return None
    return replace(problem, outputs=(Operand(output.shape, own),))


def _as_the_model_gives_it(graph: Graph, node: Node, problem: KernelProblem, view: bool) -> KernelProblem | None:
    """The problem of a node that moves a graph input, or a view of one, with its input in the model's element type:
    what moves it converts it. None where it is anyway, or the node moves something else."""
    if not node.op.moves or len(node.inputs) != 1 or problem.epilogue:
        return None
    name, (source, *_), (output, *_) = node.inputs[0], problem.inputs, problem.outputs
    while (producer := graph.producer(name)) is not None and isinstance(producer.op, Reshape):
        name = producer.inputs[0]
    own = graph.type(name).dtype
    if name not in graph.inputs or own not in COMPUTED or source.format.dtype in (own, DType.F64):
        return None
    if source.format.layout is not Layout.ROW or source.constant:
        return None
    stored = replace(output.format, dtype=own) if view else output.format
    given = Operand(source.shape, replace(source.format, dtype=own))
    return replace(problem, inputs=(given,), outputs=(Operand(output.shape, stored),))


class RuleFamily:
    """`Family` over rules: another package's family can be one of these. Each operator has one kernel, the plain one,
    and on GPUs those of its rule's forms, all of it in headers under `include_dir`; `joins` are the targets whose rows
    it joins (`AddedFamily`)."""

    def __init__(
        self, name: str, rules: Mapping[type[Op], Rule], include_dir: Path, joins: tuple[str, ...] = ()
    ) -> None:
        self.name, self.joins = name, joins
        self._rules, self._include_dir = rules, include_dir
        self._candidate = Candidate(name, (("algorithm", DIRECT),))

    @property
    def include_dir(self) -> Path:
        return self._include_dir

    @property
    def sources(self) -> tuple[Path, ...]:
        """None: its kernels are templates, made for each problem."""
        return ()

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        rule = self._rules.get(type(node.op))
        if rule is None:
            return (), (Refusal(self.name, node.name, f"there is no {self.name} body for {node.op.kind}"),)
        found: list[Alternative] = []
        lasting: list[Alternative] = []
        reasons: list[str] = []
        inputs = tuple(graph.type(name) for name in node.inputs)
        for layouts, to in rule.layouts(node, inputs, graph.type(node.outputs[0])):
            problem = problem_of(graph, node, target, precision, layouts, to)
            reason = _refuse(rule, problem, target)
            if reason is not None:
                reasons.append(reason)
                continue
            reasons += _refused_forms(rule, problem, target)
            found.append(self._alternative(rule, node, problem, target))
            last = _as_the_model_has_it(graph, node, problem)
            if last is not None and not rule.is_view(problem) and _refuse(rule, last, target) is None:
                lasting.append(self._alternative(rule, node, last, target))
            given = _as_the_model_gives_it(graph, node, problem, rule.is_view(problem))
            if given is not None and _refuse(rule, given, target) is None:
                lasting.append(self._alternative(rule, node, given, target))
        refused = tuple(Refusal(self.name, node.name, reason) for reason in dict.fromkeys(reasons))
        return (*found, *lasting), refused

    def _alternative(self, rule: Rule, node: Node, problem: KernelProblem, target: Target) -> Alternative:
        view = rule.is_view(problem)
        share = () if view else may_share(problem, node.inputs, rule.in_place)
        offset = rule.view_offset(problem) if view else 0
        pitched = (0,) if not view and _is_pitched(rule, problem, target) else ()
        apart = () if view else _reads_apart(rule, problem, target)
        step = ProposedStep(problem, node.inputs, node.outputs, share, view, offset, pitched, apart)
        best = self._candidate if view else self.candidates(problem, target)[0][0]
        return Alternative((node.name,), self.name, (step,), self.predict(problem, best, target))

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        problem = KernelProblem(Convert(), (Operand(shape, source),), (Operand(shape, to),), (), DType.F32, target.name)
        rule = self._rules.get(Convert)
        if rule is None or rule.refuse(problem) is not None:
            return None
        if same_bytes(shape, source, to):
            return problem, 0.0
        # A step that nothing in the graph asks for is to be worth its whole launch.
        best = self.candidates(problem, target)[0][0]
        return problem, self.predict(problem, best, target) + (1 - OVERLAPPED) * target.launch_seconds

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        return _candidates(self, problem, target)

    def found(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        """The same, looked for anew."""
        rule = self._rules.get(type(problem.op))
        what = problem.op.kind
        reason = f"there is no {self.name} body for {what}" if rule is None else _refuse(rule, problem, target)
        if rule is None or reason is not None:
            return (), (Refusal(self.name, what, str(reason)),)
        forms = () if target.gpu is None or _is_empty(problem) else rule.forms
        found = [form.offers(self.name, problem, target) for form in forms]
        candidates = [self.plain(problem, target), *(candidate for some, _ in found for candidate in some)]
        if len(candidates) > 1:
            candidates.sort(key=lambda each: self.predict(problem, each, target))
        return tuple(candidates), tuple(refusal for _, refused in found for refusal in refused)

    def plain(self, problem: KernelProblem, target: Target) -> Candidate:
        """The kernel of no form, which every problem that the family takes has."""
        rule = self._rules[type(problem.op)]
        cut = None if target.gpu is None else rule.plain
        return self._candidate if cut is None else cut.candidate(self.name, problem)

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """Those of the candidate's form: plain kernels have no settings."""
        form = self._form(problem, candidate)
        return () if form is None else form.variants(self.name, problem, candidate, target)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        form = self._form(problem, candidate)
        if form is not None:
            return float(form.seconds(problem, form.tile_of(candidate), target))
        rule = self._rules[type(problem.op)]
        return 0.0 if rule.is_view(problem) else _seconds(rule, problem, target)

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        """The problem's own: nothing is padded or copied."""
        return Expense(problem.nbytes, problem.flops)

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        rule = self._rules.get(type(problem.op))
        if rule is None:
            return refuse_unoffered(self, problem, candidate, target)
        if (reason := _refuse(rule, problem, target)) is not None:
            return reason
        if target.gpu is not None and (form := self._form(problem, candidate)) is not None:
            return form.refuse_candidate(problem, candidate, target)
        if target.gpu is not None and rule.plain is not None:
            return rule.plain.refuse_candidate(problem, candidate)
        return None if candidate == self._candidate else f"{candidate} is none of its candidates"

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        form = self._form(problem, candidate)
        if form is not None:
            return form.emit(problem, form.tile_of(candidate), at)
        rule = self._rules[type(problem.op)]
        if candidate == self._candidate:
            return rule.emit(problem, at)
        if rule.plain is None:
            raise ValueError(f"{candidate} is no kernel for the problem")
        return rule.plain.emit_candidate(problem, candidate, at)

    def _form(self, problem: KernelProblem, candidate: Candidate) -> AnyForm | None:
        """The form that a candidate names; None where it names none of the operator's."""
        rule, algorithm = self._rules.get(type(problem.op)), dict(candidate.parameters).get("algorithm")
        return next((form for form in (() if rule is None else rule.forms) if form.algorithm == algorithm), None)

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        """None: all of it is in headers."""
        return ()


@lru_cache(maxsize=512)
def _candidates(
    family: RuleFamily, problem: KernelProblem, target: Target
) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """A network's layers have few problems among them, and normalisations have thousands of tiles."""
    return family.found(problem, target)


class Portable(RuleFamily):
    """The rules of `kernels/`."""

    def __init__(self) -> None:
        super().__init__("portable", RULES, Path(__file__).parent / "include")

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """Those of the rules; and in one kernel two products of single pixels, a sum of rows with all around it, the
        first elements of lines with their places, or elementwise nodes; and products of tokens that lie behind each
        other."""
        found, refused = super().propose(graph, node, target, precision)
        rule = self._rules[PlacedMatMul]
        for problem in mixing(graph, node, target, precision):
            reason = _refuse(rule, problem, target)
            if reason is None:
                found = (*found, self._alternative(rule, node, problem, target))
            else:
                refused = (*refused, Refusal(self.name, node.name, f"as a product of what lies there: {reason}"))
        offers: list[tuple[tuple[str, ...], ProposedStep, tuple[KernelProblem, ...]]] = []
        if (both := squeezed(graph, node, target, precision)) is not None:
            chain, problem, apart = both
            names = (*chain.first.inputs, *chain.second.inputs[1:])
            offers.append((chain.region, ProposedStep(problem, names, chain.second.outputs), apart))
        if (sums := summed(graph, node, target, precision)) is not None:
            offers.append((sums[0].region, *sums[1:]))
        if (top := topped(graph, node, target, precision)) is not None:
            offers.append(top)
        offers += joined(graph, node, target, precision)
        offers += folded(graph, node, target, precision)
        for region, step, problems in offers:
            candidates, refusals = self.candidates(step.problem, target)
            if candidates:
                seconds = self.predict(step.problem, candidates[0], target)
                found = (*found, Alternative(region, self.name, (step,), seconds, problems))
            what = ", ".join(region)
            refused = (*refused, *(Refusal(self.name, what, refusal.reason) for refusal in refusals))
        return found, refused

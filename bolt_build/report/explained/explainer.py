"""Finds out why an engine is as it is: from its plan, what was worth measuring, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.emit.step_source import headers_of
from bolt_build.families.base import Candidate, Expense, KernelProblem, rate
from bolt_build.families.reason import within
from bolt_build.graph.ops.moves.shape import Convert
from bolt_build.planner.engine_plan import Step
from bolt_build.planner.persistent import STAGE, decisions_of
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.brief import kernel_name
from bolt_build.report.explained.chains import chains_of
from bolt_build.report.explained.changes import changes_of
from bolt_build.report.explained.explanation import (
    ELSEWHERE,
    EXPLANATION_VERSION,
    NOT_MEASURED,
    Attempt,
    Batch,
    Explanation,
    Layer,
    Padding,
    Roofline,
    RunnerUp,
    Totals,
    Untried,
)
from bolt_build.report.explained.problem_words import in_words
from bolt_build.report.explained.whole_engine import of_plan
from bolt_build.report.reasons import counted
from bolt_build.sizes import Sizes, sizes_of
from bolt_build.targets import Target
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.workflows.evidence import Evidence

FUSION = (
    "fold-pads", "fold-batch-norm", "fold-affine", "merge-branches", "fuse-epilogues", "pad-channels", "padding",
    "lengths",
)  # fmt: skip
"""Stages that say which nodes became one, whose channels are padded, and which dimensions."""

_UNTIMED = (NOT_MEASURED, ELSEWHERE)
_LAST = float("inf")


def explain(evidence: Evidence) -> Explanation:
    """Explains every step of every batch of the engine."""
    explainer, engine = _Explainer(evidence), evidence.engine
    batches = []
    for plan, graph, cover in zip(engine.plan.plans, engine.graphs, engine.covers, strict=True):
        layers = tuple(explainer.layer(plan.sizes, step, plan.steps) for step in plan.steps)
        chains = chains_of(graph, engine.plan, engine.chains, evidence.target)
        changes = changes_of(plan.steps, explainer.expense)
        whole = of_plan(plan, cover.graph, evidence.lock, engine.declined)
        slow = tuple(each for each in engine.plan.slow if sizes_of(each) == plan.sizes)
        batches.append(Batch(plan.batch, layers, _totals(layers), changes, chains, whole, slow, plan.dims))
    # What passes and the recipe decided; what times decided stands in a table of its own.
    timed = decisions_of(engine.chains)
    fusion = tuple(each for each in engine.plan.decisions if each.stage in (*FUSION, STAGE) and each not in timed)
    refusals = counted(within(refusal.family, refusal.reason) for refusal in engine.plan.refusals)
    name, precision = engine.plan.name, engine.plan.precision
    return Explanation(
        EXPLANATION_VERSION, name, evidence.target.name, precision, evidence.source, tuple(batches), fusion, refusals
    )


class _Explainer:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._target = evidence, evidence.target
        self._plan = evidence.engine.plan
        self._by_name = {family.name: family for family in evidence.families}
        self._by_problem = {each.problem.digest: each for each in evidence.problems.problems}
        self._entries = {entry.problem: entry for entry in evidence.lock.entries} if evidence.lock is not None else {}
        engines = evidence.lock.engines if evidence.lock is not None else ()
        self._swapped = {(problem, kernel): time for engine in engines for problem, kernel, time in engine.swaps}
        self._measured = {used.problem for used in evidence.engine.used if used.measured}
        self._records = _one_device(evidence)

    def layer(self, sizes: Sizes, step: Step, steps: Sequence[Step]) -> Layer:
        kernel = "view" if step.view else kernel_name(step.candidate)
        problem, digest = step.problem, step.problem.digest
        attempts = () if step.view else self._attempts(problem, step.candidate)
        predicted = None if step.view else self._predicted(problem, step.candidate)
        measured = None if step.view else self._median(digest, step.candidate)
        time = measured if measured is not None else predicted
        untried = self._untried(digest, (kernel, *(each.kernel for each in attempts)))
        names = {step.name, *step.covers}
        return Layer(
            step.index, step.name, step.covers, in_words(problem), describe_problem(problem), digest, kernel,
            () if step.view else headers_of(step, self._by_name, self._target),
            self._evidence.source if digest in self._measured else "prediction",
            predicted, measured, None if time is None else self._runner_up(digest, attempts, measured, time), attempts,
            counted(each.status for each in attempts if each.status not in (Status.OK.value, *_UNTIMED)),
            sum(each.status == Status.OK.value for each in attempts),
            sum(each.status in _UNTIMED for each in attempts),
            self._entries[digest].measured if digest in self._entries else None,
            untried, counted(within(each.family, each.reason) for each in untried),
            None if time is None else _roofline(problem, self._target, time),
            None if step.view else self._padding(problem, step.candidate, measured, time),
            tuple(str(tensor.operand.format) for tensor in step.inputs if not tensor.operand.constant),
            tuple(str(tensor.operand.format) for tensor in step.outputs),
            _is_conversion(step), _conversions_before(step, steps),
            tuple(decision for decision in self._plan.decisions if decision.subject in names
                  or decision.subject == f"{sizes}: {step.name}"),
        )  # fmt: skip

    def expense(self, step: Step) -> Expense:
        """What the kernel of a step that is no view moves and computes."""
        return self._by_name[step.candidate.family].expense(step.problem, step.candidate)

    def _attempts(self, problem: KernelProblem, chosen: Candidate) -> tuple[Attempt, ...]:
        """The other candidates: those with a time first, fastest first, then by prediction."""
        known = self._records.get(problem.digest, {})
        nothing = _UNTIMED[problem.digest in self._entries and not known]
        predicted = {}
        if problem.digest in self._by_problem:
            predicted = {trial.candidate: trial.predicted * 1e6 for trial in self._by_problem[problem.digest].trials}
        found = []
        for candidate in dict.fromkeys([*predicted, *known]):
            if candidate == chosen:
                continue
            record = known.get(candidate)
            status = nothing if record is None else record.status.value
            message = "" if record is None else record.message
            time = self._median(problem.digest, candidate)
            status = status if time is None else Status.OK.value
            found.append(Attempt(kernel_name(candidate), predicted.get(candidate), time, status, message))
        return tuple(sorted(found, key=lambda each: (each.measured or _LAST, each.predicted or _LAST)))

    def _untried(self, digest: str, known: Sequence[str]) -> tuple[Untried, ...]:
        """What was left out of the problem's trials; kernels that were measured all the same do not count."""
        refusals = self._by_problem[digest].refusals if digest in self._by_problem else ()
        return tuple(Untried(each.family, each.what, each.reason) for each in refusals if each.what not in known)

    def _predicted(self, problem: KernelProblem, candidate: Candidate) -> float:
        return self._by_name[candidate.family].predict(problem, candidate, self._target) * 1e6

    def _median(self, digest: str, candidate: Candidate) -> float | None:
        """What the lock says a kernel takes, otherwise what the records say."""
        entry = self._entries.get(digest)
        if entry is not None and candidate == entry.winner:
            return entry.median
        if entry is not None and candidate == entry.runner_up:
            return entry.runner_up_median
        if (digest, candidate) in self._swapped:
            return self._swapped[digest, candidate]
        record = self._records.get(digest, {}).get(candidate)
        if record is None or record.status is not Status.OK or record.statistics is None:
            return None
        return record.statistics.median

    def _runner_up(
        self, digest: str, attempts: Sequence[Attempt], measured: float | None, time: float
    ) -> RunnerUp | None:
        """The fastest other kernel by measurement, where the chosen one was measured; else by prediction."""
        entry = self._entries.get(digest)
        if measured is None:
            first = min(
                (a for a in attempts if a.predicted is not None), key=lambda a: a.predicted or _LAST, default=None
            )
            return (
                None if first is None or not first.predicted else _runner_up(first.kernel, first.predicted, False, time)
            )
        if attempts and attempts[0].measured is not None:
            return _runner_up(attempts[0].kernel, attempts[0].measured, True, time)
        if entry is not None and entry.runner_up is not None and entry.runner_up_median is not None:
            return _runner_up(kernel_name(entry.runner_up), entry.runner_up_median, True, time)
        return None

    def _padding(
        self, problem: KernelProblem, candidate: Candidate, measured: float | None, time: float | None
    ) -> Padding | None:
        expense = self._by_name[candidate.family].expense(problem, candidate)
        nbytes, flops = expense.nbytes - problem.nbytes, expense.flops - problem.flops
        if nbytes <= 0 and flops <= 0:
            return None
        peak = rate(problem, self._target)
        whole = max(expense.nbytes / self._target.bandwidth, expense.flops / peak)
        own = max(problem.nbytes / self._target.bandwidth, problem.flops / peak)
        without = None if time is None else self._unpadded(problem, measured, time)
        return Padding(nbytes, flops, (whole - own) * 1e6, expense.why, without)

    def _unpadded(self, problem: KernelProblem, measured: float | None, time: float) -> RunnerUp | None:
        """The fastest kernel that pads nothing: by measurement where the chosen one was measured, else predicted."""
        trials = self._by_problem[problem.digest].trials if problem.digest in self._by_problem else ()
        times: list[tuple[float, str]] = []
        for candidate in dict.fromkeys([*(t.candidate for t in trials), *self._records.get(problem.digest, {})]):
            if candidate.family not in self._by_name:
                continue
            expense = self._by_name[candidate.family].expense(problem, candidate)
            if expense.nbytes > problem.nbytes or expense.flops > problem.flops:
                continue
            found = self._predicted(problem, candidate) if measured is None else self._median(problem.digest, candidate)
            if found is not None:
                times.append((found, kernel_name(candidate)))
        return _runner_up(min(times)[1], min(times)[0], measured is not None, time) if times else None


def _runner_up(kernel: str, time: float, measured: bool, chosen: float) -> RunnerUp:
    return RunnerUp(kernel, time, measured, time / chosen - 1 if chosen else 0.0)


def _one_device(evidence: Evidence) -> dict[str, dict[Candidate, Record]]:
    """Of each problem the records of one device and toolchain, for times of several do not compare: that of the lock
    where there is one, otherwise the one with the most records."""
    groups: dict[str, dict[str, dict[Candidate, Record]]] = {}
    for fingerprint, record in evidence.records:
        groups.setdefault(record.problem, {}).setdefault(fingerprint.digest, {})[record.candidate] = record
    wanted = {}
    if evidence.lock is not None:
        wanted = {entry.problem: evidence.lock.fingerprint(entry).digest for entry in evidence.lock.entries}
    found = {}
    for problem, by_device in groups.items():
        most = min(by_device, key=lambda digest: (-len(by_device[digest]), digest))
        found[problem] = by_device.get(wanted.get(problem, most), {})
    return found


def _roofline(problem: KernelProblem, target: Target, time: float) -> Roofline:
    bandwidth, peak = target.bandwidth, rate(problem, target)
    memory, arithmetic = problem.nbytes / bandwidth * 1e6, problem.flops / peak * 1e6
    bound = max(memory, arithmetic)
    by = "memory" if memory >= arithmetic else "arithmetic"
    share = bound / time if time else 0.0
    return Roofline(problem.nbytes, problem.flops, bandwidth, peak, memory, arithmetic, bound, by, share)


def _is_conversion(step: Step) -> bool:
    return isinstance(step.problem.op, Convert) and not step.covers


def _conversions_before(step: Step, steps: Sequence[Step]) -> tuple[int, ...]:
    read = {tensor.location for tensor in step.inputs}
    values = {tensor.value for tensor in step.inputs}
    return tuple(
        other.index for other in steps[: step.index]
        if _is_conversion(other) and any(out.value in values and out.location in read for out in other.outputs)
    )  # fmt: skip


def _totals(layers: Sequence[Layer]) -> Totals:
    run = [layer for layer in layers if layer.kernel != "view"]
    conversions = [layer for layer in run if layer.is_conversion]
    padded = [layer.padding for layer in run if layer.padding is not None]
    measured = sum(layer.measured is not None for layer in run)
    return Totals(
        sum(layer.time for layer in run), measured, len(run) - measured,
        sum(layer.roofline.bound for layer in run if layer.roofline is not None),
        len(conversions), sum(layer.time for layer in conversions), len(padded), sum(each.time for each in padded),
    )  # fmt: skip

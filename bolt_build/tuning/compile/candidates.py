"""Compiling a tuning set: every kernel on its own, failures kept as records, and the rest linked to be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bolt_build.build.events import TaskEvent
from bolt_build.build.files import told, write_text
from bolt_build.build.running.session import SessionResult
from bolt_build.digest import digest_bytes
from bolt_build.families.base import Family, KernelUnit
from bolt_build.lockfile.fingerprint import TuningTools
from bolt_build.targets import Target
from bolt_build.tuning.compile.glue import GlueSource, grouped_sources, source_of, table_source
from bolt_build.tuning.compile.kernels import (
    TuningKernels,
    is_verdict,
    last_words,
    not_compiled,
    tuning_kernels,
    without,
)
from bolt_build.tuning.compile.session import TuningSession
from bolt_build.tuning.compile.tasks import (
    driver_digest,
    driver_graph,
    kernels_graph,
    linked_graph,
    source_path,
    task_of,
)
from bolt_build.tuning.exchange.bundle import BUNDLE_VERSION, Bundle, bundle_text
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials


@dataclass(frozen=True)
class Compiled:
    """What became of a tuning set's compilation. `bundle` is None where nothing can be measured: `interrupted`, or
    tasks of `broken` failed for another reason than a kernel's own, or no kernel compiled at all.

    `refused` are the failures that say something of a kernel; its candidates are in `not_compiled`. `units` are
    the tasks of all kernel units.
    """

    bundle: Bundle | None
    not_compiled: tuple[Record, ...] = ()
    refused: tuple[TaskEvent, ...] = ()
    broken: tuple[TaskEvent, ...] = ()
    finished: tuple[TaskEvent, ...] = ()
    interrupted: bool = False
    trouble: str = ""
    units: tuple[str, ...] = ()

    @property
    def nothing_compiled(self) -> bool:
        """True where the compiler refused every kernel, and nothing else went wrong."""
        return self.bundle is None and not (self.broken or self.interrupted or self.trouble)


@dataclass(frozen=True)
class _Sources:
    units: tuple[KernelUnit, ...]
    glue: tuple[GlueSource, ...]

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        units = ((unit.name, unit.text) for unit in self.units)
        glue = ((source.name, source.text) for source in self.glue)
        return tuple((source_path(name), text) for name, text in (*units, *glue))

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, digest_bytes(text.encode())) for name, text in self.files)


def compile_driver(session: TuningSession) -> SessionResult:
    """Make the program `run` alone. Raises BoltError where the directory cannot be written."""
    return session.run(driver_graph(session.context), None, keep_going=False)


def compile_candidates(
    session: TuningSession, problems: Sequence[ProblemTrials], families: Mapping[str, Family], tools: TuningTools
) -> Compiled:
    """Compile and link the trials of `problems`; where a kernel does not compile, what is left without it.

    Raises BoltError where the directory cannot be written.
    """
    context = session.context
    kernels = tuning_kernels(problems, families, context.target)
    sources = _Sources(kernels.units, grouped_sources(problems, families, context.target))
    first = session.run(kernels_graph(context, sources.units, sources.glue), sources.files, keep_going=True)
    refused, broken = _told_apart(first, sources)
    seen = Compiled(
        None, (), refused, broken, first.finished, first.interrupted, first.trouble, _unit_tasks(kernels)
    )  # fmt: skip
    if first.interrupted or broken or first.trouble:
        return seen
    by_digest = {problem.problem.digest: problem for problem in problems}
    if (alone := _alone(sources, refused, by_digest, families, context.target)) is not None:
        again = session.run(kernels_graph(context, alone.units, alone.glue), alone.files, keep_going=True)
        kept = tuple(event for event in refused if event.task in {task_of(unit.name) for unit in sources.units})
        refused, broken = _told_apart(again, alone)
        seen = replace(
            seen, refused=(*kept, *refused), broken=broken, finished=(*seen.finished, *again.finished),
            interrupted=again.interrupted, trouble=again.trouble,
        )  # fmt: skip
        if again.interrupted or broken or again.trouble:
            return seen
        sources = alone
    seen = replace(seen, not_compiled=_refusals(kernels, sources.glue, by_digest, seen.refused))
    left = without(problems, seen.not_compiled)
    if not left:
        return seen
    remaining = {problem.problem.digest: problem for problem in left}
    called = []
    for source in sources.glue:
        of_source = [remaining[name] for name in source.problems if name in remaining]
        whole = [by_digest[name].trials for name in source.problems] == [each.trials for each in of_source]
        if of_source:  # what lost no trial is called as before
            called.append(source if whole else source_of(of_source, families, context.target))
    return _linked(session, left, _Sources(_needed(kernels, left), tuple(called)), tools, seen)


def _told_apart(result: SessionResult, sources: _Sources) -> tuple[tuple[TaskEvent, ...], tuple[TaskEvent, ...]]:
    """Failures that say something of a kernel, and those of another reason."""
    refused = tuple(event for event in result.failed if is_verdict(event) and event.task in _tasks(sources))
    return refused, tuple(event for event in result.failed if event not in refused)


def _alone(
    sources: _Sources,
    refused: Sequence[TaskEvent],
    problems: Mapping[str, ProblemTrials],
    families: Mapping[str, Family],
    target: Target,
) -> _Sources | None:
    """What compiled, and a source for each problem of those sources that did not: so that one problem's mistake is no
    other's. None where no source of several problems failed."""
    failed = {event.task for event in refused}
    crowded = [each for each in sources.glue if task_of(each.name) in failed and len(each.problems) > 1]
    if not crowded:
        return None
    kept = tuple(each for each in sources.glue if each not in crowded)
    split = tuple(source_of([problems[name]], families, target) for each in crowded for name in each.problems)
    units = tuple(unit for unit in sources.units if task_of(unit.name) not in failed)
    return _Sources(units, (*kept, *split))


def _linked(
    session: TuningSession, left: Sequence[ProblemTrials], sources: _Sources, tools: TuningTools, first: Compiled
) -> Compiled:
    """The second pass: `first` with the bundle of what is left, or with what failed."""
    context = session.context
    made = (*sources.digests, ("driver", driver_digest()))
    bundle = Bundle(
        BUNDLE_VERSION, context.recipe.name, context.target.name, tools, tuple(left), first.not_compiled, made
    )
    table = table_source(left, bundle.id, context.target)
    graph = linked_graph(context, sources.units, sources.glue, table)
    second = session.run(graph, (*sources.files, (source_path(table.name), table.text)), keep_going=False)
    good = not (second.interrupted or second.failed or second.trouble)
    if good:
        with told(session.directory.bundle):
            write_text(session.directory.bundle, bundle_text(bundle))
    return replace(
        first, bundle=bundle if good else None, broken=second.failed, finished=(*first.finished, *second.finished),
        interrupted=second.interrupted, trouble=second.trouble,
    )  # fmt: skip


def _unit_tasks(kernels: TuningKernels) -> tuple[str, ...]:
    return tuple(task_of(unit.name) for unit in kernels.units)


def _tasks(sources: _Sources) -> set[str]:
    """Names of the tasks that compile kernels and their callers."""
    return {task_of(name) for name, _ in sources.files}


def _refusals(
    kernels: TuningKernels,
    glue: Sequence[GlueSource],
    problems: Mapping[str, ProblemTrials],
    refused: Sequence[TaskEvent],
) -> tuple[Record, ...]:
    """Records of what did not compile: a kernel's own unit, or the source that calls all kernels of a problem."""
    said = {event.task: last_words(event) for event in refused}
    units = {unit.name: said[task_of(unit.name)] for unit in kernels.units if task_of(unit.name) in said}
    records = list(not_compiled(kernels, units))
    known = {(record.problem, record.candidate) for record in records}
    for source in glue:
        words = said.get(task_of(source.name))
        for name in source.problems if words is not None else ():
            for trial in problems[name].trials:
                if (name, trial.candidate) not in known:
                    message = f"the code that calls it does not compile: {words}"
                    records.append(Record(name, trial.candidate, Status.NOT_COMPILED, message))
    return tuple(records)


def _needed(kernels: TuningKernels, left: Sequence[ProblemTrials]) -> tuple[KernelUnit, ...]:
    """The units that the trials of `left` need."""
    wanted = {(problem.problem.digest, trial.candidate) for problem in left for trial in problem.trials}
    names = {name for *pair, needed in kernels.needs if tuple(pair) in wanted for name in needed}
    return tuple(unit for unit in kernels.units if unit.name in names)

"""Which tasks a build would run, and why, in the recipe's words: `--dry-run`, and the count that progress counts to.

The same rules as a build's: a task runs where its key differs from its receipt's or an output is not what the receipt
says. Contents that are known without running anything (what planning just made, what would be emitted, what the cache
holds) are followed, so that a task behind an unchanged file is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from bolt_build.build.caching.cache_entry import CachedOutput
from bolt_build.build.common_tasks import CommonTasks, may_be_common
from bolt_build.build.files import Digests
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.own_code.facts import Facts, LockedKernel, LockFacts, Versioned
from bolt_build.build.planning.plan_file import PlanFile, place_of
from bolt_build.build.staleness.changes import (
    Change,
    FileChange,
    KernelChange,
    LockChange,
    ModelChange,
    NeverBuilt,
    Of,
    OutputFault,
    OwnChange,
    PackageChange,
    Part,
    RecipeChange,
    TaskChange,
    ToolChange,
    texts,
)
from bolt_build.build.staleness.receipt import Receipt, load_receipt
from bolt_build.build.staleness.up_to_date import Fault, Verdict, judge
from bolt_build.build.tasks import Task, TaskGraph, Value, ValueKind
from bolt_build.errors import Diagnostic, Mark
from bolt_build.planner.kernel_sources import UsedProblem
from bolt_build.sizes import sizes_of

_LOCK = "tuning.lock"
_PREDICTIONS = "predictions"
_NAMED = 2
"""Kernels of a lock that are named; the others are counted."""


class KnownOutputs(Protocol):
    """A cache, as far as it is asked what a task would take from it."""

    def lookup(self, key: str, outputs: Sequence[str]) -> tuple[CachedOutput, ...] | None: ...


@dataclass(frozen=True)
class StaleTask:
    """A task that would run, and why. `from_cache`: its outputs are in the cache. `key` is that of the work, None where
    it depends on what is not known; `as_for` names the target of the same build ("net/host") whose same task makes it.

    `certain` is False where it depends on what a task before it makes whether it runs.
    """

    task: Task
    changes: tuple[Change, ...]
    from_cache: bool
    certain: bool
    key: str | None = None
    as_for: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The changes as sentences."""
        return texts(self.changes)


@dataclass(frozen=True)
class Forecast:
    """What a build of one target would run, in order, and what is to be said of it beside."""

    target: str
    stale: tuple[StaleTask, ...]
    warnings: tuple[Diagnostic, ...] = ()


def forecast(
    plan: PlanFile,
    directory: TargetDirectory,
    cache: KnownOutputs | None,
    foreseen: Mapping[str, str],
    mark: Callable[[str], Mark | None],
    before: PlanFile | None = None,
) -> Forecast:
    """What a build of `plan` would run. `foreseen` are digests, by path, of files that are about to be written.

    `before` is the plan that lies there, where it is another one: it tells what of the model has changed.

    `mark` says where a dotted key stands in the recipe. Nothing is written. Raises OSError.
    """
    walk = _Walk(plan, directory, cache, dict(foreseen), mark, before)
    return Forecast(plan.graph.target, tuple(stale for task in plan.graph.tasks if (stale := walk.visit(task))))


def with_common(graphs: Sequence[TaskGraph], forecasts: Sequence[Forecast]) -> tuple[Forecast, ...]:
    """Forecasts of targets that are built together, in which tasks that wait for the same one of another target say so.
    Where the cache has it, each takes it from there."""
    common, found = CommonTasks(), []
    for graph, forecast in zip(graphs, forecasts, strict=True):
        name = f"{graph.recipe}/{graph.target}"
        shared = {task.name for task in may_be_common(graph)} if forecast.stale else set()
        stale = []
        for each in forecast.stale:
            first = None
            if each.key is not None and each.task.name in shared and not each.from_cache:
                first = common.learn(name, each.task.name, each.key)
            stale.append(each if first is None else replace(each, as_for=first[0]))
        found.append(replace(forecast, stale=tuple(stale)))
    return tuple(found)


class _Walk:
    def __init__(
        self,
        plan: PlanFile,
        directory: TargetDirectory,
        cache: KnownOutputs | None,
        foreseen: dict[str, str],
        mark: Callable[[str], Mark | None],
        before: PlanFile | None,
    ) -> None:
        self._before = before
        self._plan, self._directory, self._cache, self._foreseen, self._mark = plan, directory, cache, foreseen, mark
        self._digests = Digests()
        for file in plan.model:
            self._digests.learn(file)
        self._contents: dict[str, str | None] = {}
        self._causes: dict[str, tuple[Change, ...]] = {}
        self._planned = {file.path for file in plan.made} | foreseen.keys()
        self._reads: dict[str, tuple[str, ...]] = {}
        """The keys of the recipe that an output follows from: those of its task and of all tasks before it."""

    def visit(self, task: Task) -> StaleTask | None:
        reads = (*task.reads, *(key for name in task.inputs for key in self._reads.get(name, ())))
        self._reads |= dict.fromkeys(task.outputs, tuple(dict.fromkeys(reads)))
        receipt = load_receipt(self._directory.receipts, task.name)
        if receipt is not None:
            for known in (*receipt.inputs, *receipt.outputs):
                self._digests.learn(known)
        verdict = judge(task, receipt, self._content, lambda name: self._digests.of(self._path(name)))
        if receipt is not None and verdict.current:
            self._contents |= {output.path: output.digest for output in receipt.outputs}
            return None
        damage = _damage(task, verdict, receipt)
        changes = damage or self._changes(task, receipt)
        cached = self._predict(task, verdict, receipt)
        self._causes |= dict.fromkeys(task.outputs, changes)
        certain = verdict.key is not None or receipt is None or bool(damage)
        return StaleTask(task, changes, cached, certain, verdict.key)

    def _content(self, name: str) -> str | None:
        """The digest that the file will have when the task runs; None where nobody knows."""
        if name in self._contents:
            return self._contents[name]
        if name in self._foreseen:
            return self._foreseen[name]
        return self._digests.of(self._path(name))

    def _predict(self, task: Task, verdict: Verdict, receipt: Receipt | None) -> bool:
        """Note what the task's outputs will be, where that is known; True where they would come from the cache."""
        found = (
            self._cache.lookup(verdict.key, task.outputs)
            if self._cache is not None and task.cached and verdict.key is not None
            else None
        )
        digests = {output.name: output.digest for output in found or ()}
        if receipt is not None and verdict.same_work:
            # The same work again gives the same files: only what was damaged changes.
            digests = {output.path: output.digest for output in receipt.outputs} | digests
        for name in task.outputs:
            self._contents[name] = self._foreseen.get(name, digests.get(name))
        return found is not None

    def _changes(self, task: Task, receipt: Receipt | None) -> tuple[Change, ...]:
        if receipt is None:
            return (NeverBuilt(task.rule == "verify"),)
        found: list[Change] = []
        before, values = ({(each.kind, each.name): each for each in made.values} for made in (receipt, task))
        changes = self._fact_changes(receipt, task.reads)
        for key in dict.fromkeys([*before, *values]):
            if before.get(key) != values.get(key):
                found += (_value_change(values.get(key) or before[key], receipt.facts, self._plan.facts),)
        seen = {file.path: file.digest for file in receipt.inputs}
        for name in task.inputs:
            digest = self._content(name)
            if digest is None or seen.get(name) != digest:
                found += self._causes.get(name) or self._file_changes(name, changes, receipt)
        if receipt.argv != task.argv:
            found += changes or (TaskChange(Of.COMMAND),)
        distinct = dict.fromkeys(found)
        if len(distinct) > 1:
            # It says something of an input that is new, not of this task, which was built.
            distinct.pop(NeverBuilt(), None)
        return tuple(distinct) or changes or (TaskChange(Of.INPUTS),)

    def _fact_changes(self, receipt: Receipt, reads: Sequence[str]) -> tuple[Change, ...]:
        model = self._model_change(receipt.facts)
        return fact_changes(receipt.facts, self._plan.facts, reads, self._mark, self._plan.tuning.used, model)

    def _model_change(self, facts: Facts) -> ModelChange:
        """What of the model has changed since a task with these facts ran: its weights alone where the plan of then
        has the same layers."""
        name = Path(self._plan.model[0].path).name if self._plan.model else "the model"
        before = self._before
        if before is None or before.facts.model != facts.model:
            return ModelChange(name)
        same = before.engine.layout_digest == self._plan.engine.layout_digest
        return ModelChange(name, Part.WEIGHTS if same else Part.LAYERS)

    def _file_changes(self, name: str, changes: tuple[Change, ...], receipt: Receipt) -> tuple[Change, ...]:
        """Why an input is another one, which no stale task makes: `changes` are those that reach the task itself."""
        if name in self._planned:
            # What planning writes names the tools.
            known = changes or _tool_changes(receipt.facts, self._plan.facts)
            if known:
                return known
        if self._reads.get(name):
            # A build that was cut off made it: what it was made anew for is what changed since the task itself ran.
            found = self._fact_changes(receipt, self._reads[name])
            if found:
                return found
        place = place_of(name).partition(".")[0]
        if place == "model":
            return (self._model_change(receipt.facts),)
        if place in ("package", "family"):
            return tuple(change for change in changes if isinstance(change, PackageChange)) or (OwnChange(),)
        return (FileChange(self._plan.places.expand(name)),)

    def _path(self, name: str) -> Path:
        return self._directory.path / self._plan.places.expand(name)


def _damage(task: Task, verdict: Verdict, receipt: Receipt | None) -> tuple[Change, ...]:
    """What is wrong with outputs that exist no longer or are not what was made."""
    if receipt is None:
        return (NeverBuilt(task.rule == "verify"),) if Fault.MISSING in dict(verdict.faults).values() else ()
    # Where a task has come to make another file, what changed says why.
    made = {output.path for output in receipt.outputs}
    return tuple(OutputFault(name, fault) for name, fault in verdict.faults if name in made)


def _value_change(value: Value, before: Facts, now: Facts) -> Change:
    """What is behind a value of a task that is another one now."""
    if value.kind is ValueKind.SOURCE:
        return _own_change(before, now)
    if value.kind is ValueKind.PACKAGE:
        return PackageChange(value.name, _version(before.package(value.name)), _version(now.package(value.name)))
    return ToolChange(value.name, _version(before.tool(value.name)), _version(now.tool(value.name)))


def fact_changes(
    before: Facts,
    now: Facts,
    reads: Sequence[str],
    mark: Callable[[str], Mark | None],
    used: Sequence[UsedProblem] = (),
    model: ModelChange | None = None,
) -> tuple[Change, ...]:
    """What changed between two builds' facts that reaches a task reading these recipe keys.

    `used` are the problems of the engine, for the names of what the lock's kernels compute; `model` is what is said
    where the model is another one.
    """
    found: list[Change] = [
        RecipeChange(key, old, new, mark(key))
        for key, old, new in _differing(dict(before.recipe), dict(now.recipe))
        if any(key == read or key.startswith(f"{read}.") for read in reads)
    ]
    if before.model != now.model:
        found.append(ModelChange("the model") if model is None else model)
    if _LOCK in reads:
        found += _lock_change(before.lock, now.lock, mark(_LOCK), used)
    if not found and reads:
        packages = ({package.name: package for package in facts.packages} for facts in (before, now))
        found += [PackageChange(name, _version(old), _version(new)) for name, old, new in _differing(*packages)]
    if not found and before.own != now.own:
        found.append(_own_change(before, now))
    return tuple(found)


_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


def _differing(
    before: Mapping[_Key, _Item], now: Mapping[_Key, _Item]
) -> Iterator[tuple[_Key, _Item | None, _Item | None]]:
    """What is otherwise, with what it was and is; None where it was or is not there."""
    for key in dict.fromkeys([*before, *now]):
        if before.get(key) != now.get(key):
            yield key, before.get(key), now.get(key)


def _lock_change(
    before: LockFacts | None, now: LockFacts | None, mark: Mark | None, used: Sequence[UsedProblem]
) -> tuple[Change, ...]:
    """What the lock says otherwise: another lock, or which kernels, the first two by name."""
    if _source(before) != _source(now):
        return (RecipeChange(_LOCK, _source(before), _source(now), mark),)
    old, new = before or LockFacts(), now or LockFacts()
    places = {each.problem: each.place for each in used}
    kernels = [*_differing(*({kernel.problem: kernel for kernel in facts.kernels} for facts in (old, new)))]
    # Kernels of the engine first, and of these the ones that are others now, not just measured again.
    kernels.sort(key=lambda each: (each[0] not in places, _kernel(each[1]) == _kernel(each[2])))
    named = [KernelChange(places[problem], *pair) for problem, *pair in kernels[:_NAMED] if problem in places]
    batches = _differing(*({(each.kind, sizes_of(each)): each for each in facts.batches} for facts in (old, new)))
    others = (old.others != new.others) + (old.other_graphs != new.other_graphs) + sum(1 for _ in batches)
    more = len(kernels) - len(named) + others
    return (LockChange(_LOCK, mark, tuple(named), more),) if named or more else ()


def _source(facts: LockFacts | None) -> str | None:
    """Where kernels come from, None where that is no question."""
    if facts is None:
        return None
    return _PREDICTIONS if facts.lock is None else f"{facts.lock}, {facts.gpu}"


def _kernel(locked: LockedKernel | None) -> str:
    return "" if locked is None else locked.kernel


def _own_change(before: Facts, now: Facts) -> OwnChange:
    return OwnChange(_version(before.own), _version(now.own))


def _tool_changes(before: Facts, now: Facts) -> tuple[Change, ...]:
    tools = ({tool.name: tool for tool in facts.tools} for facts in (before, now))
    return tuple(ToolChange(name, _version(old), _version(new)) for name, old, new in _differing(*tools))


def _version(installed: Versioned | None) -> str | None:
    return None if installed is None else installed.version

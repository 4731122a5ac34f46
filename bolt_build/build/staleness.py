"""Which tasks a build would run, and why, in the recipe's words: `--dry-run`, and the count that progress counts to.

The same rules as a build's: a task runs where its key differs from its receipt's or an output is not what the receipt
says. Contents that are known without running anything (what planning just made, what would be emitted, what the cache
holds) are followed, so that a task behind an unchanged file is not named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.cache import Cache
from bolt_build.build.files import Digests
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.plan_file import Facts, PlanFile
from bolt_build.build.receipt import Receipt, load_receipt
from bolt_build.build.tasks import Task
from bolt_build.build.up_to_date import Fault, Verdict, judge
from bolt_build.errors import Diagnostic, Mark
from bolt_build.planner.kernel_sources import UsedProblem

_TOOL_NAMES = {"cxx": "the C++ compiler", "cutlass": "CUTLASS", "onednn": "oneDNN"}
_LOCK = "tuning.lock"
NEVER_BUILT = "not built yet"
"""The reason of a task that nothing is known of."""


@dataclass(frozen=True)
class StaleTask:
    """A task that would run. `from_cache`: its outputs are in the cache.

    `certain` is False where it depends on what a task before it makes whether it runs.
    """

    task: Task
    reasons: tuple[str, ...]
    from_cache: bool
    certain: bool


@dataclass(frozen=True)
class Forecast:
    """What a build of one target would run, in order, and what is to be said of it beside."""

    target: str
    stale: tuple[StaleTask, ...]
    warnings: tuple[Diagnostic, ...] = ()


def forecast(
    plan: PlanFile,
    directory: TargetDirectory,
    cache: Cache | None,
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


class _Walk:
    def __init__(
        self,
        plan: PlanFile,
        directory: TargetDirectory,
        cache: Cache | None,
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
        self._causes: dict[str, tuple[str, ...]] = {}

    def visit(self, task: Task) -> StaleTask | None:
        receipt = load_receipt(self._directory.receipts, task.name)
        if receipt is not None:
            for known in (*receipt.inputs, *receipt.outputs):
                self._digests.learn(known)
        verdict = judge(task, receipt, self._content, lambda name: self._digests.of(self._path(name)))
        if receipt is not None and verdict.current:
            self._contents |= {output.path: output.digest for output in receipt.outputs}
            return None
        damage = _damage(verdict, receipt)
        reasons = damage or self._reasons(task, receipt)
        cached = self._predict(task, verdict, receipt)
        self._causes |= dict.fromkeys(task.outputs, reasons)
        return StaleTask(task, reasons, cached, verdict.key is not None or receipt is None or bool(damage))

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

    def _reasons(self, task: Task, receipt: Receipt | None) -> tuple[str, ...]:
        if receipt is None:
            return (NEVER_BUILT,)
        found: list[str] = []
        before, values = dict(receipt.values), dict(task.values)
        model = self._model_change(receipt.facts)
        changes = fact_changes(receipt.facts, self._plan.facts, task.reads, self._mark, self._plan.tuning.used, model)
        for name in dict.fromkeys([*before, *values]):
            if before.get(name) != values.get(name):
                found += self._value_reasons(name, receipt.facts, changes)
        seen = {file.path: file.digest for file in receipt.inputs}
        for name in task.inputs:
            digest = self._content(name)
            if digest is None or seen.get(name) != digest:
                found += self._causes.get(name) or self._file_reasons(name, changes, model)
        if receipt.argv != task.argv:
            found += changes or ("its command changed",)
        return tuple(dict.fromkeys(found)) or changes or ("its inputs changed",)

    def _value_reasons(self, name: str, facts: Facts, changes: tuple[str, ...]) -> tuple[str, ...]:
        kind, _, what = name.partition(":")
        if kind == "source":
            return (_own_change(facts, self._plan.facts),)
        if kind == "package":
            return (_package_change(what, facts, self._plan.facts),)
        if kind == "tool":
            return (_tool_change(what, facts, self._plan.facts),)
        return changes or (f"{name} changed",)

    def _model_change(self, facts: Facts) -> str:
        """What of the model has changed since a task with these facts ran: its weights alone where the plan of then
        has the same layers."""
        name = Path(self._plan.model[0].path).name if self._plan.model else "the model"
        before = self._before
        if before is None or dict(before.facts).get("model") != dict(facts).get("model"):
            return f"{name} changed"
        same = before.engine.layout_digest == self._plan.engine.layout_digest
        return f"{name}: weights alone" if same else f"{name}: other layers or shapes"

    def _file_reasons(self, name: str, changes: tuple[str, ...], model: str) -> tuple[str, ...]:
        if name in self._foreseen and changes:
            return changes
        if name.startswith("${model"):
            return (model,)
        if name.startswith(("${package}", "${family.")):
            return tuple(change for change in changes if change.startswith("package ")) or (
                "bolt-build itself changed",
            )
        return (f"{self._plan.places.expand(name)} changed",)

    def _path(self, name: str) -> Path:
        return self._directory.path / self._plan.places.expand(name)


def _damage(verdict: Verdict, receipt: Receipt | None) -> tuple[str, ...]:
    """What is wrong with outputs that exist no longer or are not what was made."""
    if receipt is None:
        return (NEVER_BUILT,) if Fault.MISSING in dict(verdict.faults).values() else ()
    words = {Fault.MISSING: "output {} is missing", Fault.EDITED: "output {} was changed by hand"}
    # Where a task has come to make another file, what changed says why.
    made = {output.path for output in receipt.outputs}
    return tuple(words[fault].format(name) for name, fault in verdict.faults if name in made)


def fact_changes(
    before: Facts,
    now: Facts,
    reads: Sequence[str],
    mark: Callable[[str], Mark | None],
    used: Sequence[UsedProblem] = (),
    model: str = "the model changed",
) -> tuple[str, ...]:
    """What changed between two builds' facts that reaches a task reading these recipe keys, a sentence each.

    `used` are the problems of the engine, for the names of what the lock's kernels compute; `model` is said where the
    model is another one.
    """
    old, new = dict(before), dict(now)
    found = []
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) == new.get(name):
            continue
        kind, _, key = name.partition(":")
        if kind == "recipe" and any(key == read or key.startswith(f"{read}.") for read in reads):
            found.append(_recipe_change(key, old.get(name), new.get(name), mark(key)))
        elif kind == "model":
            found.append(model)
    if _LOCK in reads:
        found += _lock_change(old, new, mark(_LOCK), used)
    packages = (name for name in dict.fromkeys([*old, *new]) if name.startswith("package:"))
    if not found and reads:
        found += [
            _package_change(name.removeprefix("package:"), before, now)
            for name in packages
            if old.get(name) != new.get(name)
        ]
    if not found and old.get("bolt-build") != new.get("bolt-build"):
        found.append(_own_change(before, now))
    return tuple(found)


def _recipe_change(key: str, old: str | None, new: str | None, mark: Mark | None) -> str:
    where = f" ({mark.file}:{mark.line})" if mark is not None else ""
    return f"{key} changed{where}: {old if old is not None else 'absent'} -> {new if new is not None else 'absent'}"


def _lock_change(
    old: Mapping[str, str], new: Mapping[str, str], mark: Mark | None, used: Sequence[UsedProblem]
) -> list[str]:
    """What the lock says otherwise: another lock, or which kernels, the first two by name."""
    if old.get("tuning") != new.get("tuning"):
        return [_recipe_change(_LOCK, old.get("tuning"), new.get("tuning"), mark)]
    places = {f"lock:{each.problem}": each.place for each in used}
    changed = [
        name for name in dict.fromkeys([*old, *new]) if name.startswith("lock:") and old.get(name) != new.get(name)
    ]
    # Kernels of the engine first, and of these the ones that are others now, not just measured again.
    changed.sort(key=lambda name: (name not in places, _kernel(old.get(name)) == _kernel(new.get(name))))
    if not changed:
        return []
    named = [
        f"{places[name]}: {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
        for name in changed[:2]
        if name in places
    ]
    more = len(changed) - len(named)
    if more:
        named.append(f"{more} {'other ' if named else ''}choice{'s' * (more != 1)}")
    where = f" ({mark.file}:{mark.line})" if mark is not None else ""
    return [f"{_LOCK} changed{where}: {'; '.join(named)}"]


def _kernel(fact: str | None) -> str:
    """The kernel of a fact, without what it was measured to take."""
    return (fact or "").rpartition(", ")[0]


def _own_change(before: Facts, now: Facts) -> str:
    old, new = (dict(facts).get("bolt-build", "").split(" ")[0] for facts in (before, now))
    return f"bolt-build itself changed {old} -> {new}" if old and old != new else "bolt-build itself changed"


def _package_change(name: str, before: Facts, now: Facts) -> str:
    """What became of an installed package that adds to bolt-build."""
    key = f"package:{name}"
    old, new = (dict(facts).get(key, "absent").split(" ")[0] for facts in (before, now))
    return f"package {name} changed {old} -> {new}" if old != new else f"package {name} changed (still {new})"


def _tool_change(tool: str, before: Facts, now: Facts) -> str:
    name = _TOOL_NAMES.get(tool, tool)
    old, new = (re.sub(r" \w+$", "", dict(facts).get(f"tool:{tool}", "")) for facts in (before, now))
    return f"{name} changed {old} -> {new}" if old and old != new else f"{name} changed (still {new})"

"""What a recipe's lock says about one target: the kernels that planning takes from it, and what keeps it from being the
whole truth."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bolt_build.build.own_code.facts import BatchChoice, LockedKernel, LockFacts, short
from bolt_build.build.planning.plan_file import TuningUse
from bolt_build.digest import digest
from bolt_build.errors import BoltError, Diagnostic, ExitCode, Mark
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.sizes import sizes_of
from bolt_build.targets import Target
from bolt_build.toolchain import Toolchain
from bolt_build.user_files import leads_nowhere, shell_word

if TYPE_CHECKING:
    from bolt_build.lockfile.contents import LockedTarget
    from bolt_build.lockfile.fingerprint import TuningTools

    # It loads the graph, NumPy with it: a host's build that finds nothing changed needs neither.
    from bolt_build.planner.selection import Selection

PREDICTIONS = "predictions"


@dataclass(frozen=True)
class TargetLock:
    """`part` is what the lock holds for the target; `absent` says why it holds nothing. `name` is the lock's file name,
    `mark` where the recipe names it. All of it is empty for a target that is not tuned."""

    recipe: Recipe
    spec: TargetSpec
    target: Target
    name: str = ""
    part: LockedTarget | None = None
    absent: str = ""

    @property
    def selection(self) -> Selection:
        """What planning is to take."""
        # It loads the graph, NumPy with it: a host's build that finds nothing changed needs neither.
        from bolt_build.planner.selection import PREDICTED

        return self.part.selection(self.name) if self.part is not None else PREDICTED

    def relevant(self, use: TuningUse) -> Selection:
        """What of the selection can change this engine's plan."""
        if self.part is None:
            return self.selection
        found, asked = self.selection, set(use.asked)
        winners = tuple(winner for winner in found.winners if winner.problem in asked)
        covers = tuple(cover for cover in found.covers if cover.graph in use.graphs)
        engines = tuple(engine for engine in found.engines if engine.graph in use.graphs)
        return replace(found, winners=winners, covers=covers, engines=engines)

    def facts(self, use: TuningUse) -> LockFacts | None:
        """What of the lock a plan is made from, None for a target that is not tuned."""
        if not self.target.tuned:
            return None
        if self.part is None:
            return LockFacts()
        used, asked = {each.problem for each in use.used}, set(use.asked)
        kernels = [LockedKernel(each.problem, str(each.winner), round(each.median, 3)) for each in self.part.entries]
        others = {kernel.problem: kernel.text for kernel in kernels if kernel.problem in asked - used}
        covers = (cover for cover in self.part.covers if cover.graph in use.graphs)
        engines = (engine.choice for engine in self.part.engines if engine.graph in use.graphs and engine.swaps)
        batches = (
            *(BatchChoice("cover", cover.batch, short(digest(cover)), cover.dims) for cover in covers),
            *(BatchChoice("engine", engine.batch, short(digest(engine)), engine.dims) for engine in engines),
        )
        # What is of other graphs is not taken, but it is the reason that is given for that.
        others_of = [each for each in self.part.covers if each.graph not in use.graphs]
        engines_of = [each for each in self.part.engines if each.graph not in use.graphs and each.swaps]
        pairs = [[[each.graph, each.batch] for each in others_of], [[e.graph, e.batch] for e in engines_of]]
        return LockFacts(
            self.name, self.gpu, tuple(kernel for kernel in kernels if kernel.problem in used),
            short(digest(others)), batches, short(digest(pairs)) if others_of or engines_of else "",
        )  # fmt: skip

    def source(self, use: TuningUse, tools: Toolchain) -> KernelSource | None:
        """For manifest and report; None for a target that is not tuned."""
        if not self.target.tuned:
            return None
        if self.part is None:
            return KernelSource(PREDICTIONS)
        predicted = sum(not each.measured for each in use.used)
        return KernelSource("lock", self.name, self.gpu, bool(self._stale(use, tools)), predicted)

    @property
    def gpu(self) -> str:
        """Names of the GPUs that it was measured on."""
        fingerprints = self.part.fingerprints if self.part is not None else ()
        return ", ".join(dict.fromkeys(fingerprint.device.name for _, fingerprint in fingerprints))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said of every build without a lock."""
        if not self.target.tuned:
            return ()
        if self.part is not None:
            return () if self.part.stated else (self._unstated,)
        said = f"{self.recipe.name}/{self.spec.name}: kernels chosen by prediction: {self.absent}"
        return (f"{said}; tune with: {self._tune}",)

    def warnings(self, use: TuningUse, tools: Toolchain) -> tuple[Diagnostic, ...]:
        """What the lock lacks for this engine, what of it is stale, and what of it planning did not take."""
        if not self.target.tuned or self.part is None:
            return ()
        found = (self._incomplete(use, "warning"), self._outdated(use, tools, "warning"))
        return (*(each for each in found if each is not None), *self._declined(use, "warning"))

    def check_locked(self, use: TuningUse, tools: Toolchain) -> None:
        """Raises BoltError (exit code 6) where not every kernel of the engine is locked, or not the whole plan of every
        batch, naming each that is not."""
        if not self.target.tuned:
            return
        self.check_there()
        wrong = [self._incomplete(use, "error")]
        where = f"{self.recipe.name}/{self.spec.name}"
        wrong += [
            Diagnostic(
                "not-locked", f"no measured kernel for {each.what}", subject=f"{where}: {', '.join(each.occurs)}"
            )
            for each in use.used
            if not each.measured
        ]
        wrong += [self._outdated(use, tools, "error"), *self._declined(use, "error")]
        found = [each for each in wrong if each is not None]
        if found:
            raise BoltError(found, ExitCode.LOCK)

    def check_there(self) -> None:
        """Raises BoltError (exit code 6) where nothing of the target is locked: that is the one cause of all else."""
        if self.target.tuned and self.part is None:
            message = f"kernels of '{self.spec.name}' are not locked: {self.absent}"
            raise BoltError([Diagnostic("no-lock", message, self._mark, self._hint)], ExitCode.LOCK)

    def _incomplete(self, use: TuningUse, severity: str) -> Diagnostic | None:
        missing = sum(not each.measured for each in use.used)
        if not missing:
            return None
        chosen = "" if severity == "error" else ", and chosen by prediction"
        message = f"{missing} of {len(use.used)} kernels of '{self.spec.name}' are not in {self.name}{chosen}"
        return Diagnostic("incomplete-lock", message, self._mark, self._hint, severity=severity)

    def _declined(self, use: TuningUse, severity: str) -> tuple[Diagnostic, ...]:
        """One for each cover, and for each whole engine's kernels, that is not as the lock has it."""
        if self.part is None:
            return ()
        found = []
        for each in use.declined:
            of = f"of {sizes_of(each)} of '{self.spec.name}'"
            what = f"the cover {of} is" if each.what == "cover" else f"the whole engine's kernels {of} are"
            message = f"{what} not taken from {self.name}: {each.reason}"
            found.append(Diagnostic(f"{each.what}-not-locked", message, self._mark, self._hint, severity=severity))
        return tuple(found)

    def _outdated(self, use: TuningUse, tools: Toolchain, severity: str) -> Diagnostic | None:
        stale = self._stale(use, tools)
        if not stale:
            return None
        count = sum(each.measured for each in use.used)
        message = (
            f"{sum(stale.values())} of {count} kernels of '{self.spec.name}' were measured with {'; '.join(stale)}"
        )
        return Diagnostic("stale-lock", message, self._mark, self._hint, severity=severity)

    def _stale(self, use: TuningUse, tools: Toolchain) -> dict[str, int]:
        """How many of the engine's kernels were measured with another toolchain, by what differs."""
        if self.part is None:
            return {}
        used = {each.problem for each in use.used if each.measured}
        fingerprints = dict(self.part.fingerprints)
        found: dict[str, int] = {}
        for entry in self.part.entries:
            differs = _difference(fingerprints[entry.fingerprint].tools, self.target, tools)
            if entry.problem in used and differs:
                found[differs] = found.get(differs, 0) + 1
        return found

    @property
    def _unstated(self) -> str:
        """What is said of a lock whose candidates leave something to a prediction."""
        said = (
            f"{self.recipe.name}/{self.spec.name}: {self.name} has a format in which kernels do not state their slices"
        )
        return f"{said}: they are those that are predicted; state them with: {self._restate}"

    @property
    def _restate(self) -> str:
        return f"bolt-build tune {shell_word(self.recipe.path)} --restate"

    @property
    def _mark(self) -> Mark | None:
        return self.recipe.mark("tuning.lock") or self.recipe.mark(f"targets.{self.spec.name}")

    @property
    def _tune(self) -> str:
        return f"bolt-build tune {shell_word(self.recipe.path)} --target {self.spec.name}"

    @property
    def _hint(self) -> str:
        named = "" if self.recipe.tuning.lock else "name one with 'tuning: {lock: FILE}', and "
        return f"{named}tune with: {self._tune}"


def target_lock(recipe: Recipe, spec: TargetSpec, target: Target) -> TargetLock:
    """What the recipe's lock says about a target.

    Raises BoltError: with what is wrong with the file; "foreign-lock" where it was measured on another GPU than the
    target's, unless the recipe allows that.
    """
    if not target.tuned:
        return TargetLock(recipe, spec, target)
    if recipe.tuning.lock is None:
        return TargetLock(recipe, spec, target, absent="the recipe names no lock")
    path = Path(recipe.tuning.lock)
    shown = os.path.relpath(path)
    if not path.exists():
        linked = leads_nowhere(path)
        absent = f"{shown} is not there yet" if linked is None else f"{shown} is a link to {linked}, which is not there"
        return TargetLock(recipe, spec, target, path.name, absent=absent)
    # Reading locks loads jsonschema and the graph: targets without a lock need neither.
    from bolt_build.lockfile.reading import load_lock

    part = load_lock(Path(shown)).target(spec.name)
    if part is None:
        return TargetLock(recipe, spec, target, path.name, absent=f"{shown} has nothing for it")
    _check_devices(recipe, target, part, shown)
    return TargetLock(recipe, spec, target, path.name, part)


def _check_devices(recipe: Recipe, target: Target, part: LockedTarget, shown: str) -> None:
    if recipe.tuning.foreign:
        return
    names = dict.fromkeys(fingerprint.device.name for _, fingerprint in part.fingerprints)
    foreign = [name for name in names if not target.is_device(name)]
    if foreign:
        message = f"the kernels of '{target.name}' in {shown} were measured on {', '.join(foreign)}"
        hint = "tune on the target's GPU, or take them all the same with 'tuning: {foreign: true}'"
        raise BoltError([Diagnostic("foreign-lock", message, recipe.mark("tuning.lock"), hint)])


def _difference(measured: TuningTools, target: Target, tools: Toolchain) -> str:
    """What of the toolchain is not what an entry was measured with, in words; empty where all of it is.

    The digest of the kernels' own headers does not count here, as it does for records: any edit of them would make
    every lock stale, and rarely changes which kernel is fastest. Another compiler or other flags make other machine
    code.
    """
    now = {tool.name: tool.version for tool in tools.tools}
    pairs = (
        ("CUDA", measured.cuda, now.get("nvcc", "")),
        ("CUTLASS", measured.cutlass, now.get("cutlass", "")),
        ("flags", measured.flags, " ".join(target.compile_flags)),
    )
    return ", ".join(f"{name} {before}, not {after}" for name, before, after in pairs if before != after)

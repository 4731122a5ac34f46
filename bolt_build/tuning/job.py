"""The steps of a tuning, each way through them a method: measure here, export, take results, choose from records."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bolt_build.build.builder import BuildOptions, Listener
from bolt_build.build.files import told, write_named
from bolt_build.build.planning.context import BuildContext
from bolt_build.build.planning.plan_file import EngineSummary
from bolt_build.build.planning.target_lock import target_lock
from bolt_build.build.running.session import SessionResult
from bolt_build.build.sharing.client import StoreClient
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.lockfile.fingerprint import Fingerprint, TuningTools
from bolt_build.lockfile.reading import updated_lock_text
from bolt_build.planner.selection import PREDICTED
from bolt_build.toolchain import Toolchain
from bolt_build.tuning.agenda import Agenda
from bolt_build.tuning.choice.engines import engine_evidence
from bolt_build.tuning.choice.lock_part import lock_from
from bolt_build.tuning.choice.winners import evidence, select
from bolt_build.tuning.choice.winners import unmeasured as without_winner
from bolt_build.tuning.compile.candidates import Compiled, compile_candidates, compile_driver
from bolt_build.tuning.compile.session import TuningSession
from bolt_build.tuning.compile.tasks import places
from bolt_build.tuning.compile.tools import tuning_tools
from bolt_build.tuning.compile_outcome import outcome_of
from bolt_build.tuning.exchange.bundle import Bundle, write_bundle
from bolt_build.tuning.exchange.engines_tsv import engines_text
from bolt_build.tuning.exchange.results import Results
from bolt_build.tuning.importing import Adopted, adopt, bundle_of
from bolt_build.tuning.lab import Lab, lab
from bolt_build.tuning.lanes.work import Work, works_of
from bolt_build.tuning.outcome import CompileOutcome, PhaseSeconds, TuneResult, outcomes
from bolt_build.tuning.playing import (
    Played,
    holds,
    medians_of,
    not_compiled,
    open_engines,
    playable,
    problems_to_play,
    without_effect,
)
from bolt_build.tuning.records.carrying import carried, carried_engines
from bolt_build.tuning.records.counting import Measurement, comparable, unmeasured
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.records.engine_record import EngineMeasurement
from bolt_build.tuning.shared_records import SharedRecords
from bolt_build.tuning.shortfalls import ended_early, nothing_measured, unmeasured_problems
from bolt_build.tuning.store import TuningStore
from bolt_build.tuning.taking import Taking
from bolt_build.tuning.trials.engine_table import EngineLineup
from bolt_build.tuning.trials.tuning_set import ProblemTrials
from bolt_build.tuning.written_lock import writing_lock


@dataclass(frozen=True)
class TuningJob:
    """One target's tuning. `toolchain` is None where a tool is missing, `lock` where none is to be written; `held` is
    the descriptor of the claim of the build's directory; `planning` the seconds that the plan took; `place` the
    scheduler whose workers measure, None for this machine."""

    plan: Agenda
    toolchain: Toolchain | None
    options: BuildOptions
    held: int
    listener: Listener
    lock: Path | None
    planning: float
    place: str | None = None

    def measure(self, *, again: bool) -> TuneResult:
        """Compile and measure what the GPUs have no records of (all of it, where `again`)."""
        session, started = self._session(), time.monotonic()
        made = compile_driver(session)
        if made.interrupted or made.failed or made.trouble:
            return self._failed(_of_session(made), time.monotonic() - started)
        with lab(self.place, session.directory, self.plan.target, self.listener.say, foreign=self._foreign) as found:
            return self._measured_in(found, session, started, again=again)

    def _measured_in(self, lab: Lab, session: TuningSession, started: float, *, again: bool) -> TuneResult:
        here = self._here(lab)
        self._store.learn(self._digests)
        unmeasured_ones = self._unmeasured(here)  # damaged records are told of before anything is compiled
        problems = self.plan.problems.problems if again else unmeasured_ones
        known = len(self.plan.problems.problems) - len(problems)
        if known:
            self.listener.say(f"{known} of {len(self.plan.problems.problems)} problems have records of this GPU")
        if not problems:
            phases = PhaseSeconds(self.planning, time.monotonic() - started)
            return self._played_and_chosen(session, lab, None, phases, again=False)
        compiled = compile_candidates(session, problems, self.plan.by_name, self._tools)
        seconds = time.monotonic() - started
        if compiled.nothing_compiled:
            self._store.merge([(fingerprint, record) for fingerprint in here for record in compiled.not_compiled])
            return replace(self._chosen(PhaseSeconds(self.planning, seconds)), compiled=outcome_of(compiled))
        if compiled.bundle is None:
            return self._failed(compiled, seconds)
        return self._measured(session, lab, compiled, compiled.bundle, seconds, again=again)

    def export(self, path: Path) -> TuneResult:
        """Compile everything and pack it for another machine."""
        session, started = self._session(), time.monotonic()
        compiled = compile_candidates(session, self.plan.problems.problems, self.plan.by_name, self._tools)
        seconds = time.monotonic() - started
        if compiled.bundle is None:
            return self._failed(compiled, seconds)
        self._store.remember(compiled.bundle)
        leading = playable(self._leading_engines(), compiled.bundle)
        engines = engines_text(leading, compiled.bundle.problems, {}) if leading else ""
        with told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bundle(path, compiled.bundle, session.directory.path, engines)
        return self._result(
            ExitCode.OK, phases=PhaseSeconds(self.planning, seconds), compiled=outcome_of(compiled), bundle=path,
            bundle_id=compiled.bundle.id,
        )  # fmt: skip

    def take(self, results: Results, path: Path) -> TuneResult:
        """Merge the results of a bundle, which are those of the file `path`, and choose."""
        bundle = bundle_of(
            results, path, self.plan.recipe.name, self.plan.spec.name, self._store.bundles(results.bundle)
        )
        adopted = self._adopt(results, path, bundle)
        result = self._chosen(PhaseSeconds(self.planning))
        found = (*adopted.notes, *without_effect(adopted.engines, result.engines), *result.diagnostics)
        return replace(
            result, diagnostics=found, measured_now=len(adopted.measurements), played_now=len(adopted.engines)
        )

    def choose(self) -> TuneResult:
        """Choose from the records that there are."""
        return self._chosen(PhaseSeconds(self.planning))

    def write_records(self, path: Path) -> None:
        """Every record of the set's problems, as JSON. Raises BoltError."""
        with self._store.records() as records:
            data = records.export(self._digests)
        with told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_named(path, json.dumps(data, indent=1, sort_keys=True) + "\n")

    def _measured(
        self,
        session: TuningSession,
        lab: Lab,
        compiled: Compiled,
        bundle: Bundle,
        seconds: float,
        *,
        again: bool,
    ) -> TuneResult:
        self._store.remember(bundle)
        self.listener.say(f"measuring {bundle.trials} candidates of {len(bundle.problems)} problems")
        started = time.monotonic()
        taking, lanes = Taking(self.plan, self._store, bundle, session.directory.results), lab.lanes()
        works = works_of(len(bundle.problems), len(lanes), lab.most)
        taken = taking.measured(works, lanes, self.listener.say)
        phases = PhaseSeconds(self.planning, seconds, time.monotonic() - started)
        if not taken.ended.finished:
            code = ExitCode.INTERRUPTED if taken.ended.interrupted else ExitCode.TASK_FAILED
            trouble = () if taken.ended.interrupted else (ended_early(taken.ended),)
            result = self._result(code, phases=phases, diagnostics=trouble)
        else:
            result = self._played_and_chosen(session, lab, bundle, phases, again=again)
        diagnostics = (*taken.notes, *result.diagnostics)
        return replace(
            result, diagnostics=diagnostics, compiled=outcome_of(compiled), bundle_id=bundle.id,
            measured_now=taken.candidates,
        )  # fmt: skip

    def _adopt(self, results: Results, path: Path, bundle: Bundle) -> Adopted:
        adopted = adopt(results, path, bundle, self.plan.problems, self.plan.target, foreign=self._foreign)
        self._store.merge(adopted.measurements, adopted.engines)
        return adopted

    def _played_and_chosen(
        self,
        session: TuningSession,
        lab: Lab,
        linked: Bundle | None,
        phases: PhaseSeconds,
        *,
        again: bool,
    ) -> TuneResult:
        """Measure the whole engines that are not known (all, where `again`), and choose. `linked` is what the
        directory's `candidates.so` holds, None where that is not known."""
        played = self._play(session, lab, linked, again=again)
        phases = replace(phases, compile=phases.compile + played.compile, engine=played.seconds)
        if played.interrupted:
            return self._result(ExitCode.INTERRUPTED, phases=phases, diagnostics=played.diagnostics)
        result = self._chosen(phases)
        return replace(result, diagnostics=(*played.diagnostics, *result.diagnostics), played_now=played.engines)

    def _play(self, session: TuningSession, lab: Lab, linked: Bundle | None, *, again: bool) -> Played:
        """The second stage. What fails of it is a warning: what was measured of kernels alone stays."""
        if not self.plan.recipe.tuning.engine:
            return Played()
        with self._store.records() as records:
            measurements = self._comparable(self._kept(records))
            selection = select(self.plan.problems, measurements)
            lineups = self.plan.lineups(selection) if selection.winners else ()
        self._store.learn(tables=(lineup.table.digest for lineup in lineups))
        with self._store.records() as records:
            known = self._kept_engines(records.engines(lineup.table.digest for lineup in lineups))
        found = evidence(self.plan.problems, measurements)
        waiting = open_engines(lineups, found, known, self._here(lab), again=again)
        if not waiting.lineups:
            return Played(diagnostics=waiting.notes)
        started = time.monotonic()
        problems = problems_to_play(waiting.lineups, self.plan.problems.problems, measurements, self._tools)
        bundle = linked
        if bundle is None or not holds(bundle, problems):
            compiled = compile_candidates(session, problems, self.plan.by_name, self._tools)
            bundle = compiled.bundle
            if bundle is not None:
                self._store.remember(bundle)
            elif compiled.interrupted:
                return Played(diagnostics=waiting.notes, interrupted=True)
        engines = () if bundle is None else playable(waiting.lineups, bundle)
        there = {lineup.table for lineup in engines}
        notes = (*waiting.notes, *not_compiled(each for each in waiting.lineups if each.table not in there))
        if bundle is None or not engines:
            return Played(diagnostics=notes)
        compiled_at = time.monotonic()
        medians = medians_of(found, measurements)
        works = [Work(engines=engines_text([each], bundle.problems, medians)) for each in engines]
        sizes = ", ".join(lineup.sizes.words for lineup in engines)
        self.listener.say(f"measuring the whole engines of batch {sizes}")
        taking = Taking(self.plan, self._store, bundle, session.directory.engine_results)
        taken = taking.measured(works, lab.lanes(), self.listener.say)
        ended = taken.ended
        failed = () if ended.finished or ended.interrupted else (ended_early(ended, "warning"),)
        return Played(
            taken.engines, (*notes, *taken.notes, *failed), compiled_at - started, time.monotonic() - compiled_at,
            ended.interrupted,
        )  # fmt: skip

    def _leading_engines(self) -> tuple[EngineLineup, ...]:
        """The engines that a bundle is to play: as records, the recipe's lock and predictions make them. Which of them
        is the one that its measurements will give is known when they are taken."""
        if not self.plan.recipe.tuning.engine:
            return ()
        selections = [PREDICTED]
        try:
            lock = target_lock(self.plan.recipe, self.plan.spec, self.plan.target).selection
            selections.insert(0, replace(lock, engines=()))
        except BoltError as error:
            self.listener.say(f"the engines to play are not taken from the lock: {error.diagnostics[0].message}")
        with self._store.records() as records:
            selections.insert(0, select(self.plan.problems, self._comparable(self._kept(records))))
        return tuple(lineup for each in dict.fromkeys(selections) for lineup in self.plan.lineups(each))

    def _chosen(self, phases: PhaseSeconds) -> TuneResult:
        """Select from the records, find the covers, and write the lock where it changes."""
        assert self.lock is not None, "only an export has no lock"
        started = time.monotonic()
        self._store.learn(self._digests)
        with self._store.records() as records:
            measurements = self._comparable(self._kept(records))
        selection = select(self.plan.problems, measurements)
        if not selection.winners:
            nothing = (nothing_measured(self._name, measurements),)
            return self._result(ExitCode.TASK_FAILED, phases=phases, diagnostics=nothing, measurements=measurements)
        engine = self.plan.engine(selection)
        found = evidence(self.plan.problems, measurements)
        lineups = self.plan.lineups(selection)
        played = self._played_before(lineups) if self.plan.recipe.tuning.engine else ()
        engines = engine_evidence(lineups, found, measurements, played) if played else ()
        part = lock_from(self.plan.problems, measurements, engine.covers, engines)
        text = updated_lock_text(self.lock, part)
        with writing_lock(self.plan.recipe, self.lock):
            changed = not self.lock.is_file() or self.lock.read_bytes() != text.encode()
            if changed:
                write_named(self.lock, text)
        missing = without_winner(self.plan.problems, selection)
        warnings = (unmeasured_problems(self._name, missing),) if missing else ()
        phases = replace(phases, select=time.monotonic() - started)
        result = self._result(ExitCode.OK, phases=phases, diagnostics=warnings, measurements=measurements)
        return replace(result, lock=self.lock, lock_changed=changed, engines=engines)

    def _failed(self, compiled: Compiled, seconds: float) -> TuneResult:
        """What stands in the way of measuring: an interruption, failed tasks, or that no kernel compiles."""
        diagnostics: tuple[Diagnostic, ...] = ()
        if compiled.trouble:
            diagnostics = (Diagnostic("scons-failed", compiled.trouble, subject=self._name),)
        elif compiled.nothing_compiled:
            diagnostics = (Diagnostic("nothing-compiled", f"no kernel of {self._name} compiles"),)
        code = ExitCode.INTERRUPTED if compiled.interrupted else ExitCode.TASK_FAILED
        phases = PhaseSeconds(self.planning, seconds)
        return self._result(code, phases=phases, diagnostics=diagnostics, compiled=outcome_of(compiled))

    def _result(
        self,
        code: ExitCode,
        *,
        phases: PhaseSeconds,
        diagnostics: tuple[Diagnostic, ...] = (),
        measurements: Sequence[Measurement] = (),
        compiled: CompileOutcome | None = None,
        bundle: Path | None = None,
        bundle_id: str | None = None,
    ) -> TuneResult:
        return TuneResult(
            self.plan.recipe.name, code, self.plan.spec.name, diagnostics=diagnostics,
            problems=outcomes(self.plan.problems, measurements), compiled=compiled, bundle=bundle,
            bundle_id=bundle_id, phases=phases, left_out=self.plan.problems.refusals,
        )  # fmt: skip

    def _session(self) -> TuningSession:
        plan = self.plan
        assert self.toolchain is not None, "tools are looked for before"
        summary = EngineSummary(
            plan.recipe.name, (), (), tuple(dict.fromkeys(graph.batch for graph in plan.graphs)), "", 0, 0, 0
        )
        context = BuildContext(
            plan.recipe, plan.target, plan.families, self.toolchain, summary, plan.model, verified=False
        )
        root = self.options.directory(plan.recipe)
        return TuningSession(context, root, self.options, self.held, self.listener, places())

    def _here(self, lab: Lab) -> tuple[Fingerprint, ...]:
        return tuple(dict.fromkeys(Fingerprint(device, self._tools) for device in lab.devices))

    def _unmeasured(self, here: Sequence[Fingerprint]) -> tuple[ProblemTrials, ...]:
        with self._store.records() as records:
            return unmeasured(self.plan.problems.problems, self._kept(records), here)

    def _kept(self, records: Records) -> tuple[Measurement, ...]:
        """What was measured of the problems, with what other headers have left as it was."""
        if self.toolchain is None:
            return records.all(self._digests)
        records.tell_apart(self._tools)
        return carried(records.all(self._digests), self._tools)

    def _kept_engines(self, found: tuple[EngineMeasurement, ...]) -> tuple[EngineMeasurement, ...]:
        """The same of whole engines."""
        return found if self.toolchain is None else carried_engines(found, self._tools)

    def _played_before(self, lineups: Sequence[EngineLineup]) -> tuple[EngineMeasurement, ...]:
        self._store.learn(tables=(lineup.table.digest for lineup in lineups))
        with self._store.records() as records:
            return self._kept_engines(records.engines())

    def _comparable(self, found: Sequence[Measurement]) -> tuple[Measurement, ...]:
        tools = None if self.toolchain is None else self._tools
        return comparable(found, self.plan.target, tools, foreign=self._foreign)

    @cached_property
    def _store(self) -> TuningStore:
        cache, shared = self.options.local_cache, self.options.shared
        with told(cache.directory):
            cache.folders.make()
        team = None if shared is None else SharedRecords(StoreClient(shared), self.listener.say)
        return TuningStore(cache.directory / "tuning", team)

    @cached_property
    def _tools(self) -> TuningTools:
        assert self.toolchain is not None, "tools are looked for before"
        return tuning_tools(self.plan.target, self.plan.families, self.toolchain)

    @property
    def _foreign(self) -> bool:
        return self.plan.recipe.tuning.foreign

    @property
    def _digests(self) -> tuple[str, ...]:
        return tuple(problem.problem.digest for problem in self.plan.problems.problems)

    @property
    def _name(self) -> str:
        return f"{self.plan.recipe.name} for {self.plan.spec.name}"


def _of_session(made: SessionResult) -> Compiled:
    return Compiled(
        None, broken=made.failed, finished=made.finished, interrupted=made.interrupted, trouble=made.trouble
    )  # fmt: skip

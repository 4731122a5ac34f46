"""A tuning from recipe to lock: what is worth measuring is compiled, measured here or through a bundle, and chosen."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from bolt_build.build.builder import BuildOptions, Listener, chosen
from bolt_build.build.claim import Wait, directory_claim
from bolt_build.build.files import told
from bolt_build.build.running.signal_handlers import handled
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.lockfile.reading import load_lock
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import target_named
from bolt_build.toolchain import Toolchain, probe
from bolt_build.toolchain.machine import without_other_gpus
from bolt_build.tuning.agenda import EVERY_CANDIDATE, agenda_of
from bolt_build.tuning.exchange.results import Results, read_results
from bolt_build.tuning.job import TuningJob
from bolt_build.tuning.lab import lab_of
from bolt_build.tuning.outcome import TuneResult
from bolt_build.tuning.written_lock import writing_lock
from bolt_build.user_files import kind_of, stands_for_stream


@dataclass(frozen=True)
class TuneOptions:
    """At most one of `export` (a tar file to write), `results` (a file to import) and `from_records` is given; without
    them candidates are measured here.

    `remeasure`: also what has records. `records_out`: a file for the records of the recipe's problems.
    `all_candidates`: as many a problem as are legal.
    """

    build: BuildOptions = field(default_factory=BuildOptions)
    export: Path | None = None
    results: Path | None = None
    from_records: bool = False
    remeasure: bool = False
    records_out: Path | None = None
    all_candidates: bool = False

    @property
    def measures(self) -> bool:
        return self.export is None and self.results is None and not self.from_records


def tune(recipe: Recipe, options: TuneOptions, listener: Listener) -> TuneResult:
    """Tune one target of a recipe. Must run in the main thread, for the sake of signals.

    Raises BoltError where nothing could be attempted; what goes wrong later is in the result.
    """
    started = time.monotonic()
    here = options.measures and options.build.scheduler is None
    spec, untuned = tuned_target(recipe, options.build.targets, here=here)
    if spec is None:
        return TuneResult(recipe.name, ExitCode.OK, untuned=untuned)
    target = target_named(spec.name)
    lock = None if options.export is not None else _lock_file(recipe)
    for path in (options.export, options.records_out):
        if path is not None:
            _check_writable(Path(os.path.abspath(path)))
    results = None if options.results is None else read_results(options.results)
    place = lab_of(recipe, spec, options.build.scheduler, listener.say) if options.measures else None
    toolchain = probe(target.tools)
    if (options.measures or options.export is not None) and toolchain.missing:
        raise BoltError(toolchain.diagnostics(), ExitCode.TOOL_MISSING)
    directory = options.build.directory(recipe)
    # SIGTERM and SIGHUP end planning as Ctrl-C does; while tasks run the session has its own handlers.
    ended = handled(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP)
    wait = Wait(listener.say)
    with ended, directory_claim(directory.path, wait=options.build.wait, say=wait.say) as held:
        started += (waited := wait.seconds)
        limit = EVERY_CANDIDATE if options.all_candidates else None
        plan = agenda_of(recipe, spec, target, directory, listener.say, limit)
        tools = _usable(toolchain)
        job = TuningJob(plan, tools, options.build, held, listener, lock, time.monotonic() - started, place)
        result = _run(job, options, results)
    return replace(result, untuned=untuned, seconds=time.monotonic() - started, waited=waited)


def tuned_target(recipe: Recipe, names: tuple[str, ...], *, here: bool) -> tuple[TargetSpec | None, tuple[str, ...]]:
    """The one target to tune, None where none of those named (all, without names) is ever tuned; and the names of
    those that are not. Of several it is the one of the GPU `here`, if that is where kernels are measured.

    Raises BoltError ("several-targets") where there are several to tune."""
    specs = chosen(recipe, names)
    tuned = [spec for spec in specs if target_named(spec.name).tuned]
    if here and len(tuned) > 1:
        kept = without_other_gpus([spec.name for spec in tuned])
        tuned = [spec for spec in tuned if spec.name in kept]
    if len(tuned) > 1:
        hint = f"choose one with --target: {', '.join(spec.name for spec in tuned)}"
        message = f"{recipe.path} has several targets to tune"
        raise BoltError([Diagnostic("several-targets", message, hint=hint)], ExitCode.USAGE)
    never = tuple(spec.name for spec in specs if not target_named(spec.name).tuned)
    return (tuned[0] if tuned else None), never


def _run(job: TuningJob, options: TuneOptions, results: Results | None) -> TuneResult:
    """`results` are those that the options name, read before anything was planned."""
    if options.export is not None:
        result = job.export(Path(os.path.abspath(options.export)))
    elif results is not None and options.results is not None:
        result = job.take(results, options.results)
    elif options.from_records:
        result = job.choose()
    else:
        result = job.measure(again=options.remeasure)
    if options.records_out is not None and result.exit_code is not ExitCode.INTERRUPTED:
        job.write_records(Path(os.path.abspath(options.records_out)))
    return result


def _usable(toolchain: Toolchain) -> Toolchain | None:
    return None if toolchain.missing else toolchain


def _lock_file(recipe: Recipe) -> Path:
    """The file that the recipe names. Raises BoltError where it names none, and where that cannot be written or is no
    lock: better now than when everything is measured."""
    if recipe.tuning.lock is None:
        entry = f"lock: {Path(recipe.path).stem}.lock"
        mark = recipe.mark("tuning")
        hint = f"add this line: tuning: {{{entry}}}" if mark is None else f"add to it: {entry}"
        raise BoltError([Diagnostic("no-lock", f"{recipe.path} names no file for what tuning finds", mark, hint)])
    path = Path(recipe.tuning.lock)
    with writing_lock(recipe, path):
        _try_to_write(path)
    if path.exists():
        load_lock(path)
    return path


def _check_writable(path: Path) -> None:
    """Raises BoltError where a file that is written last could not be: better now than when everything is compiled."""
    if path.is_dir():
        message, hint = f"cannot write {path}: it is a folder", "name a file in it"
        raise BoltError([Diagnostic("not-a-file", message, hint=hint, subject=str(path))])
    if stands_for_stream(path):
        message, hint = f"cannot write {path}: it is {kind_of(path) or 'no file of its own'}", "name a file"
        raise BoltError([Diagnostic("not-a-file", message, hint=hint, subject=str(path))])
    with told(path, "name a file in a folder of your own"):
        _try_to_write(path)


def _try_to_write(path: Path) -> None:
    """Make and remove a file beside `path`, or where that leads as a link. Raises OSError with a name that `told` knows
    for the file's own."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    trial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    trial.touch()
    trial.unlink()

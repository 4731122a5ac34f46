"""A tuning as people and programs read it: a row a problem, what failed and why, and how long each phase took."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bolt_build.build.events import TaskEvent
from bolt_build.errors import ExitCode
from bolt_build.families.base import Candidate, Refusal
from bolt_build.report.diagnostics import as_json
from bolt_build.report.explained.whole_engine import WholeEngine, all_lines, of_evidence
from bolt_build.report.progress import waiting
from bolt_build.report.tables import Column, table
from bolt_build.tuning.choice.engines import EngineEvidence
from bolt_build.tuning.outcome import ProblemOutcome, TuneResult
from bolt_build.tuning.records.engine_record import TriedPlan, TriedSwap
from bolt_build.tuning.records.kernel_record import Record
from bolt_build.tuning.trials.tuning_set import Trial
from bolt_build.user_files import shell_word

_COLUMNS = (
    Column("problem", name=True), Column("winner", name=True), Column("us", right=True),
    Column("runner-up", name=True, spare=2), Column("slower", right=True, spare=1),
    Column("predicted", right=True, spare=3), Column("measured", right=True, spare=1), Column("failed", spare=1),
)  # fmt: skip
_LEAST_LOG = 12
"""Lines of a compiler's output that are shown of a kernel that it refused."""


def table_text(result: TuneResult, width: int | None) -> str:
    """A row a problem, what takes longest first, at most `width` characters wide; None is no limit."""
    if not result.problems:
        return ""
    rows = [_row(each) for each in sorted(result.problems, key=_rank)]
    return "\n".join(line.plain for line in table(_COLUMNS, rows, width)) + "\n"


def refused_text(result: TuneResult) -> str:
    """Kernels that did not compile: the end of each log and how to repeat it. They cost no other kernel."""
    lines: list[str] = []
    for event in result.compiled.refused if result.compiled is not None else ():
        lines += ["", f"warning[not-compiled]: {result.recipe}/{result.target}: {event.label}: {event.text}"]
        lines += _log(event, _LEAST_LOG)
    return "\n".join(lines) + "\n" if lines else ""


def broken_text(result: TuneResult) -> str:
    """Tasks that failed for another reason than a kernel's own, as a build shows them."""
    lines: list[str] = []
    for event in result.compiled.broken if result.compiled is not None else ():
        lines += ["", f"error[task-failed]: {result.recipe}/{result.target}: {event.label}: {event.text}"]
        lines += _log(event, len(event.log.splitlines()))
    return "\n".join(lines) + "\n" if lines else ""


def summary_text(result: TuneResult) -> str:
    """What there is now, and what took how long."""
    if result.target is None:
        return f"{result.recipe}: nothing to tune for {', '.join(result.untuned)}\n"
    lines = [f"nothing to tune for {name}: its kernels have no choice" for name in result.untuned]
    failures = _failures(result)
    if failures:
        lines.append(f"failed candidates: {failures}")
    if result.bundle is not None and result.compiled is not None:
        lines += [
            f"{_short(result.bundle)}: {result.compiled.candidates} candidates of {len(result.problems)} problems",
            f"  run it on the GPU: tar xf {shell_word(result.bundle.name)} && ./run",
            f"  then: bolt-build tune RECIPE --target {result.target} --import results.jsonl",
        ]
    lines += all_lines(whole_engines(result))
    if result.lock is not None:
        lines.append(f"{_short(result.lock)}: {'written' if result.lock_changed else 'unchanged'}")
    lines.append(f"{result.recipe}: {_word(result)}, {_phases(result)}, {result.seconds:.2f} s{waiting(result.waited)}")
    return "\n".join(lines) + "\n"


def tuning_data(result: TuneResult) -> dict[str, Any]:
    """The whole result as JSON data: times are microseconds, phases seconds."""
    compiled = result.compiled
    return {
        "event": "result", "recipe": result.recipe, "target": result.target, "untuned": list(result.untuned),
        "exit_code": int(result.exit_code), "diagnostics": as_json(result.diagnostics),
        "lock": None if result.lock is None else str(result.lock), "lock_changed": result.lock_changed,
        "bundle": None if result.bundle is None else str(result.bundle), "bundle_id": result.bundle_id,
        "measured_now": result.measured_now, "played_now": result.played_now,
        "compile": None if compiled is None else {
            "units": compiled.units, "units_reused": compiled.reused, "candidates": compiled.candidates,
            "run": compiled.made, "from_cache": compiled.cached,
            "not_compiled": [
                {"problem": record.problem, **_candidate(record.candidate), "message": record.message}
                for record in compiled.not_compiled
            ],
            "refused": [_failure(event) for event in compiled.refused],
            "failed": [_failure(event) for event in compiled.broken],
        },
        "statuses": dict(sorted(_statuses(result).items())),
        "seconds": {
            "plan": round(result.phases.plan, 3), "compile": round(result.phases.compile, 3),
            "measure": round(result.phases.measure, 3), "engine": round(result.phases.engine, 3),
            "select": round(result.phases.select, 3), "total": round(result.seconds, 3),
            "waited": round(result.waited, 3),
        },
        "engines": [_engine(each) for each in result.engines],
        "left_out": [_refusal(each) for each in result.left_out],
        "problems": [_problem(outcome) for outcome in result.problems],
    }  # fmt: skip


def whole_engines(result: TuneResult) -> list[WholeEngine]:
    """What is known of the engines as their problems' winners make them."""
    winners = {
        each.evidence.problem: (each.evidence.winner.candidate, each.evidence.median)
        for each in result.problems
        if each.evidence is not None
    }
    return [of_evidence(each, winners) for each in result.engines]


def _engine(found: EngineEvidence) -> dict[str, Any]:
    """Times are microseconds, gains parts of the time without the swap."""
    record = found.record
    return {
        "batch": record.batch, "table": record.table, "plan": record.plan, "other_plan": found.other_plan,
        "before": found.before.median, "after": found.after.median,
        "gain": found.gain, "low": None if record.gain is None or not found.changed else record.gain.low,
        "high": None if record.gain is None or not found.changed else record.gain.high, "threshold": record.threshold,
        "complete": record.complete, "message": record.message,
        "swaps": [{"problem": problem, **_candidate(kernel), "alone": alone} for problem, kernel, alone in found.swaps],
        "tried": [{"problem": each.problem, **_candidate(each.candidate), **_tried(each)} for each in record.tried],
        "plans": [{"plan": each.plan, **_tried(each)} for each in record.plans],
    }  # fmt: skip


def _tried(found: TriedSwap | TriedPlan) -> dict[str, Any]:
    gain = found.gain
    return {
        "status": found.status.value, "message": found.message, "before": found.first, "after": found.second,
        "gain": None if gain is None else gain.median, "low": None if gain is None else gain.low,
        "high": None if gain is None else gain.high, "pairs": 0 if gain is None else gain.pairs, "kept": found.kept,
    }  # fmt: skip


def _rank(outcome: ProblemOutcome) -> float:
    return -1e9 if outcome.evidence is None else -outcome.evidence.median


def _row(outcome: ProblemOutcome) -> tuple[str, ...]:
    found, counts = outcome.evidence, dict(outcome.statuses)
    failed = " ".join(f"{count} {status}" for status, count in counts.items() if status != "ok")
    measured = f"{counts.get('ok', 0)}/{len(outcome.trials.trials)}"
    if found is None:
        return (_place(outcome), "-", "", "", "", "", measured, failed)
    other = found.runner_up.candidate if found.runner_up is not None else None
    margin = "" if outcome.margin is None else f"{100 * outcome.margin:+.1f}%"
    return (
        _place(outcome), str(found.winner.candidate), f"{found.median:.2f}", "-" if other is None else str(other),
        margin, f"{outcome.predicted:.2f}", measured, failed,
    )  # fmt: skip


def _place(outcome: ProblemOutcome) -> str:
    """Where a problem occurs first, and how often beside that."""
    first, *others = outcome.trials.occurs
    return f"{first} (+{len(others)})" if others else first


def _word(result: TuneResult) -> str:
    return {
        ExitCode.OK: "done", ExitCode.INTERRUPTED: "interrupted", ExitCode.TASK_FAILED: "failed"
    }.get(result.exit_code, "failed")  # fmt: skip


def _phases(result: TuneResult) -> str:
    phases = (("planned", "plan"), ("compiled", "compile"), ("measured", "measure"),
              ("played", "engine"), ("chosen", "select"))  # fmt: skip
    took = ((word, getattr(result.phases, name)) for word, name in phases)
    return ", ".join(f"{word} {seconds:.1f} s" for word, seconds in took if seconds)


def _statuses(result: TuneResult) -> Counter[str]:
    """How many candidates ended how; before anything is measured, those that did not compile."""
    counts: Counter[str] = Counter()
    for outcome in result.problems:
        counts.update(dict(outcome.statuses))
    if not counts and result.compiled is not None and result.compiled.not_compiled:
        counts["not-compiled"] = len(result.compiled.not_compiled)
    return counts


def _failures(result: TuneResult) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(_statuses(result).items()) if status != "ok")


def _failure(event: TaskEvent) -> dict[str, Any]:
    return {
        "task": event.task, "label": event.label, "reason": event.text, "log": event.log, "log_file": event.log_file,
        "command": event.command,
    }  # fmt: skip


def _problem(outcome: ProblemOutcome) -> dict[str, Any]:
    found = outcome.evidence
    other = None if found is None else found.runner_up
    return {
        "problem": outcome.trials.problem.digest, "what": outcome.what, "occurs": list(outcome.trials.occurs),
        "winner": None if found is None else _candidate(found.winner.candidate),
        "median": None if found is None else found.median, "predicted": outcome.predicted,
        "runner_up": None if other is None else _candidate(other.candidate),
        "runner_up_median": None if other is None or other.statistics is None else other.statistics.median,
        "margin": outcome.margin, "statuses": dict(outcome.statuses),
        "device": None if found is None else found.fingerprint.device.name,
        "fingerprint": None if found is None else found.fingerprint.digest,
        "trials": [_trial(trial, outcome.record(trial.candidate)) for trial in outcome.trials.trials],
        "refused": [_refusal(each) for each in outcome.trials.refusals],
    }  # fmt: skip


def _refusal(refusal: Refusal) -> dict[str, Any]:
    return {"family": refusal.family, "what": refusal.what, "reason": refusal.reason}


def _trial(trial: Trial, record: Record | None) -> dict[str, Any]:
    times = None if record is None else record.statistics
    return {
        **_candidate(trial.candidate), "of": trial.of, "predicted": 1e6 * trial.predicted,
        "status": "not-measured" if record is None else record.status.value,
        "message": "" if record is None else record.message, "error": None if record is None else record.error,
        "median": None if times is None else times.median, "spread": None if times is None else times.spread,
        "least": None if times is None else times.least, "greatest": None if times is None else times.greatest,
    }  # fmt: skip


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "candidate": str(candidate), "family": candidate.family, "parameters": dict(candidate.parameters),
        "settings": dict(candidate.settings), "digest": candidate.digest,
    }  # fmt: skip


def _log(event: TaskEvent, most: int) -> Iterable[str]:
    yield from (f"  | {line}" for line in event.log.splitlines()[-most:])
    if event.log_file:
        yield f"  log: {_short(event.log_file)}"
    yield f"  to repeat it: {event.command}"


def _short(path: str | os.PathLike[str]) -> str:
    text = os.path.relpath(path)
    return os.fspath(path) if text.startswith("..") else text

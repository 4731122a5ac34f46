"""Results of a bundle, taken into records: whose they are, what of them still counts, and what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.sizes import Sizes
from bolt_build.targets import Target
from bolt_build.tuning.exchange.bundle import DESCRIPTION, Bundle, read_bundle
from bolt_build.tuning.exchange.engine_results import EngineRow
from bolt_build.tuning.exchange.results import Results, Row
from bolt_build.tuning.playing import not_played
from bolt_build.tuning.records.counting import Measurement
from bolt_build.tuning.records.engine_record import (
    EngineMeasurement,
    EngineRecord,
    Kernels,
    TriedPlan,
    TriedSwap,
)
from bolt_build.tuning.records.kernel_record import Record, Statistics, Status
from bolt_build.tuning.trials.tuning_set import TuningSet

_Names = Mapping[tuple[str, str], Candidate]
"""Candidates by the digests of problem and candidate."""


@dataclass(frozen=True)
class Adopted:
    """Records of results, of candidates and of whole engines, and notes about what of them does not count."""

    measurements: tuple[Measurement, ...]
    notes: tuple[Diagnostic, ...]
    engines: tuple[EngineMeasurement, ...] = ()


def bundle_of(results: Results, path: Path, recipe: str, target: str, made: Iterable[Path]) -> Bundle:
    """The bundle that results belong to: by its id among those that were `made` here, or beside the results.

    Raises BoltError: "unknown-bundle" where it is nowhere, "other-bundle" where it was made of another recipe or
    target, "not-as-engines" where launches did not overlap, and what `read_bundle` raises.
    """
    if not results.overlap:
        message = f"{path} was measured with --no-overlap: every launch waited for the one in front, as engines' do not"
        hint = "run the bundle again without it"
        raise BoltError([Diagnostic("not-as-engines", message, hint=hint, subject=str(path))])
    for place in (*made, path.parent / DESCRIPTION):
        if not place.is_file():
            continue
        bundle = read_bundle(place)
        if bundle.id != results.bundle:
            continue
        if (bundle.recipe, bundle.target) != (recipe, target):
            message = f"{path} was measured for the recipe '{bundle.recipe}' and {bundle.target}"
            hint = f"import it there; this is '{recipe}' and {target}"
            raise BoltError([Diagnostic("other-bundle", message, hint=hint, subject=str(path))])
        return bundle
    message = f"{path} was measured with the bundle {results.bundle[:12]}, which was not made here"
    hint = f"put the {DESCRIPTION} of that bundle beside it"
    raise BoltError([Diagnostic("unknown-bundle", message, hint=hint, subject=str(path))])


def adopt(
    results: Results, path: Path, bundle: Bundle, tuning_set: TuningSet, target: Target, *, foreign: bool
) -> Adopted:
    """The records of results for problems of the set, kernels that did not compile among them, and of whole engines.

    Rows of problems that the recipe has no more, and of GPUs that are not the target's, are left out with a note.
    Raises BoltError ("other-gpu") where no GPU is the target's, and ("damaged-results") where a row names what the
    bundle does not hold.
    """
    fitting = [foreign or target.is_device(device.name) for device in results.devices]
    if not any(fitting):
        raise BoltError([_other_gpu(results, path, target)])
    names = {(p.problem.digest, t.candidate.digest): t.candidate for p in bundle.problems for t in p.trials}
    fingerprints = [Fingerprint(device, bundle.tools) for device in results.devices]
    here = {problem.problem.digest for problem in tuning_set.problems}
    gone, found = set(), []
    for row in results.rows:
        candidate = _named(names, path, row.problem, row.candidate)
        if row.problem not in here:
            gone.add(row.problem)
        elif fitting[row.device]:
            found.append((fingerprints[row.device], _record(row, candidate, results.uuid(row))))
    for fingerprint in dict.fromkeys(pair[0] for pair in found):
        found += [(fingerprint, record) for record in bundle.not_compiled if record.problem in here]
    engines = tuple(
        (fingerprints[row.device], _engine(row, results, names, path)) for row in results.engines if fitting[row.device]
    )
    notes = _notes(path, len(gone), len(bundle.problems), results, fitting)
    return Adopted(tuple(found), tuple(notes), engines)


def _named(names: _Names, path: Path, problem: str, candidate: str) -> Candidate:
    found = names.get((problem, candidate))
    if found is None:
        raise BoltError([_stranger(path, candidate)])
    return found


def _engine(row: EngineRow, results: Results, names: _Names, path: Path) -> EngineRecord:
    """The record of an engine with what was tried in it on the same device."""

    def kernels(found: Iterable[tuple[str, str]]) -> Kernels:
        return tuple((problem, _named(names, path, problem, candidate)) for problem, candidate in found)

    tried = tuple(
        TriedSwap(
            swap.problem, _named(names, path, swap.problem, swap.candidate), swap.status, swap.message,
            _median(swap.first), _median(swap.second), swap.gain, swap.kept,
        )
        for swap in results.swaps
        if (swap.engine, swap.device) == (row.engine, row.device)
    )  # fmt: skip
    plans = tuple(
        TriedPlan(plan.plan, plan.status, plan.message, _median(plan.first), _median(plan.second), plan.gain, plan.kept)
        for plan in results.plans
        if (plan.engine, plan.device) == (row.engine, row.device)
    )
    if (len(tried), len(plans)) != (row.tried, row.plans):
        raise BoltError([_swaps_missing(path, row, len(tried) + len(plans))])
    return EngineRecord(
        row.engine, row.batch, kernels(row.base), kernels(row.chosen), row.status, row.message, row.first, row.second,
        row.gain, row.threshold, tried, row.complete, row.plan, plans,
        results.uuid(row),
    )  # fmt: skip


def _median(statistics: Statistics | None) -> float | None:
    return None if statistics is None else statistics.median


def _record(row: Row, candidate: Candidate, gpu: str) -> Record:
    return Record(row.problem, candidate, row.status, row.message, row.statistics, row.error, gpu)


def _notes(path: Path, gone: int, problems: int, results: Results, fitting: list[bool]) -> Iterable[Diagnostic]:
    if gone:
        message = f"{path}: {gone} of its {problems} problems are left out, as the recipe has them no more"
        yield Diagnostic("old-problems", message, severity="note")
    others = sorted({device.name for device, fits in zip(results.devices, fitting, strict=True) if not fits})
    if others:
        message = f"{path}: what was measured on {', '.join(others)} is left out"
        yield Diagnostic("other-gpu", message, severity="note")
    for row, fits in ((row, fitting[row.device]) for row in results.engines):
        if fits and row.status is not Status.OK:
            message = f"{path}: the whole engine of batch {row.batch}: {row.status.value}: {row.message}"
            yield Diagnostic("engine-failed", message, severity="warning")
    for left in results.unplayed:
        yield not_played(Sizes(left.batch), left.message)
    if not results.complete:
        message = f"{path} is of a measurement that was ended: what it has is taken"
        yield Diagnostic("incomplete-results", message, severity="warning")


def _other_gpu(results: Results, path: Path, target: Target) -> Diagnostic:
    names = ", ".join(sorted({device.name for device in results.devices})) or "no GPU"
    message = f"{path} was measured on {names}, not on {target.description}"
    hint = "measure the bundle there, or set tuning.foreign in the recipe to take these times"
    return Diagnostic("other-gpu", message, hint=hint, subject=str(path))


def _stranger(path: Path, candidate: str) -> Diagnostic:
    message = f"{path} has a result of the candidate {candidate[:12]}, which its bundle does not hold"
    return Diagnostic("damaged-results", message, hint="measure the bundle again", subject=str(path))


def _swaps_missing(path: Path, row: EngineRow, found: int) -> Diagnostic:
    message = f"{path} states {row.tried + row.plans} swaps in the engine of batch {row.batch}, and holds {found}"
    return Diagnostic("damaged-results", message, hint="measure the bundle again", subject=str(path))

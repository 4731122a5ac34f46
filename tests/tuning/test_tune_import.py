"""Results of a bundle: taken into records, chosen from, and locked; and what is said of those that cannot be."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tune_projects import H200, Project, by_prediction, last_first, new_project, write_model
from tune_sets import bundle as other_bundle

from bolt_build.build.planning.preparing import Preparer
from bolt_build.errors import BoltError, ExitCode
from bolt_build.lockfile.reading import load_lock
from bolt_build.report.diagnostics import render
from bolt_build.tuning import job as tuning_job
from bolt_build.tuning.exchange.bundle import bundle_text
from bolt_build.tuning.exchange.results import read_results, results_text
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return new_project(tmp_path / "work")


def conv(project: Project) -> ProblemTrials:
    return next(p for p in project.plan().problems.problems if p.problem.op.kind == "conv")


def complaint(project: Project, **options: object) -> str:
    """What is said where the tuning ends with exit code 3."""
    with pytest.raises(BoltError) as caught:
        project.tune(**options)
    assert caught.value.exit_code is ExitCode.INVALID
    return render(caught.value.diagnostics, color=False).replace(f"{project.path}/", "")


def test_the_lock_has_the_fastest_and_the_engine_takes_it(project: Project) -> None:
    slowest = [trial for trial in conv(project).trials if trial.of is None][-1].candidate
    result = project.imported(last_first)
    assert (result.exit_code, result.lock, result.lock_changed) == (ExitCode.OK, project.lock, True)
    part = load_lock(project.lock).target("a100")
    assert part is not None
    entries = {entry.problem: entry for entry in part.entries}
    assert entries[conv(project).problem.digest].winner == slowest
    assert len(entries) == len(project.plan().problems.problems)
    planner = Preparer(project.recipe, project.build.directory(project.recipe), lambda text: None)
    steps = planner.plan_engine(project.recipe.targets[0]).plan.plans[0].steps
    assert slowest in [step.candidate for step in steps]


def test_the_records_alone_give_the_same_lock(project: Project) -> None:
    project.imported(last_first)
    first = project.lock.read_bytes()
    again = project.tune(from_records=True)
    assert (again.exit_code, again.lock_changed) == (ExitCode.OK, False)
    project.lock.unlink()
    result = project.tune(from_records=True)
    assert (result.lock_changed, project.lock.read_bytes()) == (True, first)


def test_parts_of_other_targets_stay(project: Project) -> None:
    project.imported(by_prediction)
    text = project.lock.read_text()
    project.lock.write_text(text.replace("\n  a100:\n", "\n  zzz:\n"))
    project.tune(from_records=True)
    assert [part.target for part in load_lock(project.lock).targets] == ["a100", "zzz"]
    assert project.lock.read_text().startswith(text)


def test_a_candidate_that_fails_costs_no_other(project: Project) -> None:
    first = conv(project).trials[0].candidate

    def medians(problem: ProblemTrials, trial: Trial) -> float | Status:
        return Status.CRASHED if trial.candidate == first else by_prediction(problem, trial)

    result = project.imported(medians)
    found = next(p for p in result.problems if p.trials.problem == conv(project).problem)
    assert dict(found.statuses)["crashed"] == 1
    assert found.evidence is not None
    assert found.evidence.winner.candidate == conv(project).trials[1].candidate
    assert found.record(first) == Record(conv(project).problem.digest, first, Status.CRASHED, "why")


def test_kernels_that_did_not_compile_have_records(project: Project) -> None:
    first = conv(project).trials[0].candidate
    gone = Record(conv(project).problem.digest, first, Status.NOT_COMPILED, "error: no such tile")
    whole = project.bundle()
    left = tuple(replace(p, trials=p.trials[1:]) if p.problem == conv(project).problem else p for p in whole.problems)
    bundle = replace(whole, problems=left, not_compiled=(gone,))
    project.remember(bundle)
    result = project.tune(results=project.results(bundle, by_prediction))
    found = next(p for p in result.problems if p.trials.problem == conv(project).problem)
    assert found.record(first) == gone


def test_a_problem_without_a_time_is_told_of(project: Project) -> None:
    def medians(problem: ProblemTrials, trial: Trial) -> float | Status:
        return Status.TIMED_OUT if problem.problem.op.kind == "conv" else 5.0

    result = project.imported(medians)
    assert result.exit_code is ExitCode.OK
    assert render(result.diagnostics, color=False) == (
        "tiny for a100: warning[not-measured]: no kernel was measured for 1 of the problems, so the predicted one"
        " stays: batch 1: relu\n"
        "  hint: tune again: what is measured stays, and tuning.budget says how long measuring may take\n"
    )


def test_nothing_measured_writes_no_lock(project: Project) -> None:
    result = project.imported(lambda problem, trial: Status.REFUSED)
    assert result.exit_code is ExitCode.TASK_FAILED
    assert render(result.diagnostics, color=False) == (
        "error[nothing-measured]: no record says how fast any kernel of tiny for a100 is\n"
    )
    assert not project.lock.exists()


def test_an_older_set_of_problems_counts_as_far_as_it_goes(project: Project) -> None:
    old = project.bundle()
    path = project.results(old, by_prediction)
    project.remember(old)
    write_model(project.path / "tiny.onnx", channels=24)
    result = project.tune(results=path)
    kept = {p.problem.digest for p in old.problems} & {p.problem.digest for p in project.plan().problems.problems}
    assert kept
    notes = render(result.diagnostics[:1], color=False).replace(f"{project.path}/", "")
    assert notes == (
        f"note[old-problems]: results.jsonl: {len(old.problems) - len(kept)} of its {len(old.problems)} problems are "
        "left out, as the recipe has them no more\n"
    )
    part = load_lock(project.lock).target("a100")
    assert part is not None
    assert {entry.problem for entry in part.entries} == kept


def test_results_of_a_measurement_that_was_ended(project: Project) -> None:
    bundle = project.bundle()
    project.remember(bundle)
    result = project.tune(results=project.results(bundle, by_prediction, complete=False))
    assert render(result.diagnostics, color=False).replace(f"{project.path}/", "") == (
        "warning[incomplete-results]: results.jsonl is of a measurement that was ended: what it has is taken\n"
    )


def test_a_bundle_that_was_made_elsewhere_is_taken_from_beside_its_results(project: Project) -> None:
    bundle = project.bundle()
    path = project.results(bundle, by_prediction)
    assert complaint(project, results=path) == (
        f"error[unknown-bundle]: results.jsonl was measured with the bundle {bundle.id[:12]}, which was not made here\n"
        "  hint: put the bundle.json of that bundle beside it\n"
    )
    (project.path / "bundle.json").write_text(bundle_text(bundle))
    assert project.tune(results=path).exit_code is ExitCode.OK


def test_a_bundle_of_another_recipe(project: Project) -> None:
    bundle = other_bundle(recipe="resnet50")
    path = project.results(bundle, by_prediction)
    project.remember(bundle)
    assert complaint(project, results=path) == (
        "error[other-bundle]: results.jsonl was measured for the recipe 'resnet50' and a100\n"
        "  hint: import it there; this is 'tiny' and a100\n"
    )


def test_results_of_launches_that_did_not_overlap(project: Project) -> None:
    bundle = project.bundle()
    project.remember(bundle)
    path = project.results(bundle, by_prediction)
    path.write_text(results_text(replace(read_results(path), overlap=False)))
    assert complaint(project, results=path) == (
        "error[not-as-engines]: results.jsonl was measured with --no-overlap: every launch waited for the one in "
        "front, as engines' do not\n"
        "  hint: run the bundle again without it\n"
    )


def test_results_of_a_candidate_that_the_bundle_does_not_hold(project: Project) -> None:
    bundle = project.bundle()
    project.remember(bundle)
    path = project.results(bundle, by_prediction)
    digest = bundle.problems[0].trials[0].candidate.digest
    path.write_text(path.read_text().replace(digest, "f" * 64))
    assert complaint(project, results=path) == (
        "error[damaged-results]: results.jsonl has a result of the candidate ffffffffffff, which its bundle does not "
        "hold\n"
        "  hint: measure the bundle again\n"
    )


def test_results_of_another_gpu(project: Project) -> None:
    bundle = project.bundle()
    project.remember(bundle)
    path = project.results(bundle, by_prediction, H200)
    assert complaint(project, results=path) == (
        "error[other-gpu]: results.jsonl was measured on NVIDIA H200, not on NVIDIA A100\n"
        "  hint: measure the bundle there, or set tuning.foreign in the recipe to take these times\n"
    )
    assert not project.lock.exists()
    project.write(("lock}", "lock, foreign: true}"))
    assert project.tune(results=path).exit_code is ExitCode.OK
    assert project.lock.exists()


def test_results_of_another_version(project: Project) -> None:
    bundle = project.bundle()
    project.remember(bundle)
    path = project.results(bundle, by_prediction)
    path.write_text(path.read_text().replace('"version": 2', '"version": 3', 1))
    assert "error[results-version]: the results have format version 3" in complaint(project, results=path)
    assert not project.lock.exists()


def test_results_that_are_cut_off_in_their_first_line(project: Project) -> None:
    bundle = project.bundle()
    project.remember(bundle)
    path = project.results(bundle, by_prediction)
    path.write_text(path.read_text()[:20])
    assert complaint(project, results=path) == (
        "error[results-unreadable]: 'results.jsonl' holds no results of a measurement: its first line is not whole\n"
        "  hint: give the results.jsonl that the bundle's run wrote\n"
    )


def test_a_lock_in_a_place_that_cannot_be_written_is_told_of_before_anything_else(project: Project) -> None:
    (project.path / "file").write_text("")
    project.write(("tiny.lock", "file/tiny.lock"))
    assert complaint(project, from_records=True) == (
        "tiny.yaml:5:31: error[lock-not-writable]: the lock: cannot make a directory file: a file stands in the way\n"
        "  5 | tuning: {candidates: 3, lock: file/tiny.lock}\n"
        "    |                               ^^^^^^^^^^^^^^ name another file; records of what was measured stay\n"
    )
    assert not (project.path / "generated").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_lock_in_a_read_only_directory(project: Project) -> None:
    folder = project.path / "locks"
    folder.mkdir(mode=0o555)
    project.write(("tiny.lock", "locks/tiny.lock"))
    assert "error[lock-not-writable]: the lock: cannot write locks/" in complaint(project, from_records=True)


def test_a_lock_that_cannot_be_written_any_more_keeps_the_records(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(tuning_job, "write_named", full)
        bundle = project.bundle()
        project.remember(bundle)
        path = project.results(bundle, by_prediction)
        said = "error[lock-not-writable]: the lock: cannot write tiny.lock: Read-only file system\n"
        assert said in complaint(project, results=path)
    assert project.tune(from_records=True).lock_changed


def test_records_can_be_written_out(project: Project) -> None:
    project.imported(by_prediction)
    out = project.path / "deep" / "records.json"
    project.tune(from_records=True, records_out=out)
    data = json.loads(out.read_text())
    assert len(data["records"]) == sum(len(p.trials) for p in project.plan().problems.problems)
    assert {each["device"]["name"] for each in data["fingerprints"].values()} == {"NVIDIA A100-SXM4-80GB"}


def test_more_candidates_are_considered_when_all_are_asked_for(project: Project) -> None:
    project.imported(by_prediction)
    few, every = project.tune(from_records=True), project.tune(from_records=True, all_candidates=True)
    assert sum(len(p.trials.trials) for p in few.problems) < sum(len(p.trials.trials) for p in every.problems)

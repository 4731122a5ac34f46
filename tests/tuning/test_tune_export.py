"""Bundles compiled with the real compiler: what is packed, that engines find its objects, and what interrupts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from cuda_engine import built_for_symbols, nvcc
from shared_folders import SharedFolder
from tune_projects import Project, by_prediction, new_project

from bolt_build.build.builder import dry_run
from bolt_build.build.cleaning import clean
from bolt_build.errors import ExitCode
from bolt_build.families import load
from bolt_build.families.base import Candidate, Family, KernelProblem, KernelUnit
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.planner.selection import PREDICTED
from bolt_build.report.progress import QuietProgress
from bolt_build.targets import Target
from bolt_build.tuning import agenda as tuning_planning
from bolt_build.tuning.compile import tasks
from bolt_build.tuning.exchange.bundle import read_bundle
from bolt_build.tuning.exchange.engines_tsv import engines_text
from bolt_build.tuning.outcome import TuneResult
from bolt_build.tuning.records.kernel_record import Status
from bolt_build.tuning.run import TuneOptions, tune

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_SECONDS = 300
ONE_KERNEL = (
    ("candidates: 3", "candidates: 1"),
    ("targets:", "engine: {io: {dtype: fp16, layout: channels_last}}\ntargets:"),
)
"""Changes of a project's recipe: a candidate of the convolution alone, which reads and writes what the caller has."""


def export(project: Project, name: str, cache: Path) -> TuneResult:
    options = TuneOptions(replace(project.build, cache=cache), export=project.path / name)
    return tune(project.recipe, options, QuietProgress())


@pytest.fixture(scope="module", autouse=True)
def _soon_compiled() -> Iterator[None]:
    """Objects are made, found and packed: whatever is in them, and the driver that reads its files."""
    with built_for_symbols("a100"), mock.patch.object(tasks, "SOON_COMPILED", ("-O0",)):
        yield


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory, cache_home: Path, shared_folder: SharedFolder
) -> tuple[Project, Path]:
    """A project with `b.tar`, and the cache that was used."""
    nvcc()
    project, cache = new_project(tmp_path_factory.mktemp("tuning") / "work"), cache_home / "bolt-build"
    project.write(*ONE_KERNEL)
    # Of two workers that both come here the second takes from the cache what the first has compiled.
    with shared_folder("tune-export"):
        result = export(project, "b.tar", cache)
    assert result.exit_code is ExitCode.OK, result
    return project, cache


def test_a_bundle_has_the_driver_the_kernels_and_what_they_are(exported: tuple[Project, Path]) -> None:
    project, _ = exported
    with tarfile.open(project.path / "b.tar") as archive:
        archive.extractall(project.path / "there", filter="data")
    there = project.path / "there"
    bundle = read_bundle(there / "bundle.json")
    assert (bundle.recipe, bundle.target, bundle.not_compiled) == ("tiny", "a100", ())
    assert bundle.problems == project.plan().problems.problems
    listed = subprocess.run([there / "run", "--list"], capture_output=True, text=True, check=True).stdout
    assert listed.startswith(f"bundle {bundle.id} for a100 (sm_80 and later): {len(bundle.problems)} problems")
    assert not project.lock.exists()


def test_a_bundle_has_the_engines_that_predictions_make(exported: tuple[Project, Path]) -> None:
    project, _ = exported
    there = project.path / "engines"
    with tarfile.open(project.path / "b.tar") as archive:
        archive.extractall(there, filter="data")
    lineups = project.plan().lineups(PREDICTED)
    text = (there / "engines.tsv").read_text()
    assert text == engines_text(lineups, read_bundle(there / "bundle.json").problems, {})
    # The driver reads it before it looks for a GPU.
    argv = [there / "run", "--results", there / "r.jsonl", "--gpus", "1023"]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == ExitCode.TOOL_MISSING
    (there / "engines.tsv").write_text(text.replace(lineups[0].problems[0], "cafe"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.INVALID
    assert "candidates.so has no problem cafe" in done.stderr


def test_another_directory_gives_the_same_bytes_from_the_cache(exported: tuple[Project, Path], tmp_path: Path) -> None:
    project, cache = exported
    other = new_project(tmp_path / "elsewhere")
    other.write(*ONE_KERNEL)
    result = export(other, "b.tar", cache)
    assert result.compiled is not None
    assert (result.compiled.made, result.compiled.reused) == (0, result.compiled.units)
    assert (other.path / "b.tar").read_bytes() == (project.path / "b.tar").read_bytes()
    removed = clean(other.recipe, replace(other.build, targets=())).removed
    assert removed == (other.path / "generated" / "tiny" / "a100.tuning",)
    assert not (other.path / "generated" / "tiny").exists()


def test_the_engine_takes_the_winners_object_from_the_cache(exported: tuple[Project, Path]) -> None:
    project, cache = exported
    options = replace(project.build, cache=cache)
    bundle = read_bundle(project.path / "b.tar")
    result = tune(project.recipe, TuneOptions(options, results=project.results(bundle, by_prediction)), QuietProgress())
    assert result.exit_code is ExitCode.OK
    stale = {
        each.task.name: each for found in dry_run(project.recipe, options, QuietProgress()) for each in found.stale
    }
    units = [each for name, each in stale.items() if name.startswith("compile-k_")]
    assert units
    assert all(each.from_cache for each in units)
    assert not stale["compile-plan_b1"].from_cache


class BrokenCutlass(Cutlass):
    """CUTLASS of which only one candidate compiles."""

    def __init__(self, whole: Candidate) -> None:
        self.whole = whole

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        found = super().units(steps, target)
        if steps[0][1] == self.whole:
            return found
        return tuple(KernelUnit(f"k_broken_{i}.cu", '#error "no such tile"\n', 900) for i, _ in enumerate(found))


@pytest.mark.large
def test_a_kernel_that_does_not_compile_costs_no_other(
    exported: tuple[Project, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two candidates the one that the cache has compiles, the other does not."""
    bundle = read_bundle(exported[0].path / "b.tar")
    (whole,) = {t.candidate for p in bundle.problems for t in p.trials if t.candidate.family == "cutlass"}

    def broken(target: Target) -> tuple[Family, ...]:
        return (BrokenCutlass(whole), *load(target)[1:])

    monkeypatch.setattr(tuning_planning, "load", broken)
    project = new_project(tmp_path / "work")
    project.write(("candidates: 3", "candidates: 2"), *ONE_KERNEL[1:])
    result = export(project, "b.tar", exported[1])
    assert result.exit_code is ExitCode.OK
    bundle = read_bundle(project.path / "b.tar")
    (record,) = bundle.not_compiled
    assert record.status is Status.NOT_COMPILED
    assert 'error: #error "no such tile"' in record.message
    assert (record.candidate.family, record.candidate != whole) == ("cutlass", True)
    measured = {trial.candidate for problem in bundle.problems for trial in problem.trials}
    assert whole in measured
    assert record.candidate not in measured


@pytest.mark.large
def test_an_interrupted_compilation_leaves_nobody_and_no_bundle(tmp_path: Path) -> None:
    nvcc()
    project = new_project(tmp_path / "work")
    words = ["tune", "tiny.yaml", "--export", "b.tar", "--cache", "cache", "--format", "json"]
    run = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from bolt_build.cli.main import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", run, *words], cwd=project.path, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line).get("kind") == "started":
                break
        child.send_signal(signal.SIGINT)
        last = json.loads(child.stdout.read().splitlines()[-1])
        assert child.wait(_PATIENCE_SECONDS) == 130
    assert (last["event"], last["exit_code"], last["bundle"]) == ("result", 130, None)
    assert not (project.path / "b.tar").exists()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while processes_in(project.path):
        assert time.monotonic() < deadline, processes_in(project.path)
        time.sleep(0.05)


def processes_in(path: Path) -> list[int]:
    """Processes whose working directory is inside `path`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd").startswith(str(path)):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found

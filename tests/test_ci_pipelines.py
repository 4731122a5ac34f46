"""The pipelines under `ci/` do what they say: their own commands, run in a stranger's repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from graph_models import model, node, saved, tensor

import bolt_build

ROOT = Path(__file__).resolve().parents[1]
INSTALL = 'python -m pip install "bolt-build[host,cuda,verify]==$BOLT_BUILD_VERSION"'
COMMANDS = (
    "bolt-build check recipes/*.yaml",
    "bolt-build recipes/*.yaml --keep-going --cache .bolt-cache",
    "bolt-build verify recipes/*.yaml",
)
RECIPE = """\
bolt: 1
name: net
model: {onnx: ../models/net.onnx, batch: 1}
targets: {host: {precision: fp32}}
verify: {samples: 1}
"""
UPLOADED = {"lib*.so*", "*.weights", "*.h", "*-run", "manifest.json", "verify.json"}


@dataclass(frozen=True)
class Pipeline:
    """What a pipeline file asks its service to do. `commands` in order; `cache` is the directory kept between runs."""

    file: str
    variables: Mapping[str, str]
    commands: tuple[str, ...]
    cache: str
    uploads: tuple[str, ...]


def github() -> Pipeline:
    data = yaml.safe_load((ROOT / "ci" / "github-actions.yml").read_text(encoding="utf-8"))
    steps = data["jobs"]["engines"]["steps"]
    (restore, save, upload) = (
        one_step(steps, action) for action in ("actions/cache/restore", "actions/cache/save", "actions/upload-artifact")
    )
    # The service only finds again what was saved from the same path.
    assert restore["path"] == save["path"]
    commands = tuple(step["run"] for step in steps if "run" in step)
    return Pipeline("github-actions.yml", data["env"], commands, restore["path"], tuple(upload["path"].split()))


def one_step(steps: list[dict[str, Any]], action: str) -> dict[str, str]:
    """The settings of the only step that uses an action."""
    (found,) = [step["with"] for step in steps if step.get("uses", "").partition("@")[0] == action]
    return dict(found)


def gitlab() -> Pipeline:
    data = yaml.safe_load((ROOT / "ci" / "gitlab-ci.yml").read_text(encoding="utf-8"))
    job = data["engines"]
    (cache,) = job["cache"]["paths"]
    commands = (*job["before_script"], *job["script"])
    return Pipeline("gitlab-ci.yml", data["variables"], commands, cache, tuple(job["artifacts"]["paths"]))


PIPELINES = (github(), gitlab())
EACH = pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: pipeline.file)


def repository(path: Path) -> Path:
    """A repository with one recipe, as a runner checks it out."""
    for folder in ("recipes", "models"):
        (path / folder).mkdir(parents=True)
    (path / "recipes" / "net.yaml").write_text(RECIPE)
    random = np.random.RandomState(0)
    weights = random.randn(4, 3, 3, 3).astype(np.float32)
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")]
    saved(path / "models", model(nodes, [tensor("x", ["N", 3, 8, 8])], constants={"w": weights}), "net.onnx")
    return path


def run(pipeline: Pipeline, where: Path) -> str:
    """Run the commands as the service does, one after the other until one fails; what they printed.

    Installation is replaced by the running environment: `bolt-build` is this checkout.
    """
    programs = where.parent / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "bolt-build"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m bolt_build "$@"\n')
    program.chmod(0o755)
    assert pipeline.commands[0] == INSTALL
    script = "\n".join(pipeline.commands[1:])
    environment = os.environ | dict(pipeline.variables) | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        # Nothing may come from the cache of the one who runs the tests.
        "XDG_CACHE_HOME": str(where.parent / "nobody's"),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=where, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Run:
    """A finished run of a pipeline: its working directory and what it printed."""

    path: Path
    said: str

    @property
    def compilations(self) -> set[str]:
        """Compilations that ran, from their lines `[3/14 0:09] compile engine.cpp 2.1 s`."""
        return set(re.findall(r"^\[\d+/\d+ \d+:\d\d\] (compile \S+) [\d.]+ s$", self.said, re.M))

    @property
    def fetched(self) -> set[str]:
        return set(re.findall(r"^\[\d+/\d+ \d+:\d\d\] (compile \S+) from the cache$", self.said, re.M))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, cache_home: Path) -> Run:
    """A run whose cache knows other engines at most: what all engines have in common need not be compiled again."""
    path = repository(tmp_path_factory.mktemp("ci") / "repository")
    (cache_home / "bolt-build").mkdir(parents=True, exist_ok=True)
    (path / PIPELINES[0].cache).symlink_to(cache_home / "bolt-build")
    return Run(path, run(PIPELINES[0], path))


@EACH
def test_a_pipeline_installs_checks_builds_and_verifies(pipeline: Pipeline) -> None:
    assert pipeline.commands == (INSTALL, *COMMANDS)


@EACH
def test_a_pipeline_installs_the_version_it_belongs_to(pipeline: Pipeline) -> None:
    assert pipeline.variables["BOLT_BUILD_VERSION"] == bolt_build.__version__


@EACH
def test_a_pipeline_uploads_all_that_an_engine_is(pipeline: Pipeline) -> None:
    assert set(pipeline.uploads) == {f"generated/*/*/{name}" for name in UPLOADED}


def test_the_cache_of_github_belongs_to_recipes_models_and_version() -> None:
    data = yaml.safe_load((ROOT / "ci" / "github-actions.yml").read_text(encoding="utf-8"))
    restore = one_step(data["jobs"]["engines"]["steps"], "actions/cache/restore")
    assert restore["key"].endswith("-${{ env.BOLT_BUILD_VERSION }}-${{ hashFiles('recipes/**', '**/*.onnx') }}")
    # A key is found again by its beginning, the nearest first.
    assert all(restore["key"].startswith(beginning) for beginning in restore["restore-keys"].split("\n") if beginning)


def test_a_first_run_compiles_what_is_the_engine_s_own(first: Run) -> None:
    assert first.compilations >= {"compile engine.cpp", "compile plan_b1.cpp"}


@EACH
def test_the_next_run_compiles_nothing_and_has_everything_to_upload(
    pipeline: Pipeline, first: Run, tmp_path: Path
) -> None:
    path = repository(tmp_path / "repository")
    unfinished = shutil.ignore_patterns(".*")  # of tests that build at the same time
    shutil.copytree(first.path / PIPELINES[0].cache, path / pipeline.cache, ignore=unfinished)
    again = Run(path, run(pipeline, path))
    assert again.compilations == set()
    assert again.fetched == first.compilations | first.fetched
    for pattern in pipeline.uploads:
        found = {file.relative_to(path) for file in path.glob(pattern) if file.is_file()}
        assert found, pattern
        assert found == {file.relative_to(first.path) for file in first.path.glob(pattern)}
    assert json.loads((path / "generated/net/host/verify.json").read_text())["ok"] is True

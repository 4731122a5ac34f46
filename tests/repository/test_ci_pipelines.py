"""Every command of the pipelines under `ci/`, run in a checkout with recipes of its own. It installs the package from
nothing, so it takes minutes: `pytest -m large tests/repository/test_ci_pipelines.py`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import emulated
import onnx
import pytest
from ci_host import CI, ROOT, Host, pipeline, run_github, run_gitlab
from onnx import TensorProto, helper
from recipe_projects import write_model
from tune_projects import Project, by_prediction

from bolt_build.toolchain import probe
from bolt_build.tuning.exchange.bundle import read_bundle

pytestmark = pytest.mark.large

RECIPE = """\
bolt: 1
name: net
model: {onnx: net.onnx, batch: 1}
targets: {host: {precision: fp32}}
verify: {samples: 1}
"""
GPU_RECIPE = """\
bolt: 1
name: gpu
model: {onnx: relu.onnx, batch: [1, 3]}
targets: {a100: {precision: fp16}}
tuning: {candidates: 1, lock: gpu.lock}
verify: {samples: 1}
"""
PARTS = ("bolt_build", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")


def repository(path: Path) -> Path:
    """bolt-build's checkout as far as it is installed, with a recipe of one's own."""
    path.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, path / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, path / part)
    (path / ".gitignore").write_text("generated/\n.bolt-cache\n__pycache__/\nreports/\ndist/\n")
    (path / "recipes").mkdir()
    (path / "recipes" / "net.yaml").write_text(RECIPE)
    write_model(path / "recipes" / "net.onnx")
    (path / "recipes" / "gpu.yaml").write_text(GPU_RECIPE)
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "relu", types[:1], types[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path / "recipes" / "relu.onnx"))
    return path


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", sorted(path.name for path in CI.glob("*.yml")))
def test_pipelines_install_from_the_checkout_and_put_nothing_foreign_into_a_shell(name: str) -> None:
    """No index has bolt-build; what a stranger can write reaches a command as a variable alone."""
    data = pipeline(name)
    assert (data.get("env") or data["variables"])["BOLT_BUILD"] == ".[host,cuda,verify]"
    commands = [text for text in texts(data) if "bolt-build " in text or "git " in text]
    assert commands
    assert not any("${{" in text for text in commands)
    assert 'python -m pip install "$BOLT_BUILD"' in texts(data)


def test_the_cache_of_github_belongs_to_recipes_locks_and_models() -> None:
    steps = pipeline("github-engines.yml")["jobs"]["engines"]["steps"]
    restore, save = (
        next(step["with"] for step in steps if step.get("uses", "").startswith(f"actions/cache/{what}"))
        for what in ("restore", "save")
    )
    # The service only finds again what was saved from the same path, and a key by its beginning.
    assert restore["path"] == save["path"] == ".bolt-cache"
    assert restore["key"].endswith("-${{ hashFiles('**/*.yaml', '**/*.lock', '**/*.onnx') }}")
    assert restore["key"].startswith(restore["restore-keys"].strip())


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, cache_home: Path) -> tuple[Host, Host]:
    """GitHub's and GitLab's with the same repository, whose GPU recipe has no lock yet.

    Their cache knows other engines at most: what all engines have in common need not be compiled again.
    """
    if probe(("nvcc", "cutlass")).diagnostics():
        pytest.skip("needs nvcc and CUTLASS")
    folder, cache = tmp_path_factory.mktemp("ci"), emulated.cache_with_runtime(cache_home)
    found = Host(folder / "github", cache, with_a_gpu), Host(folder / "gitlab", cache, with_a_gpu)
    for host in found:
        host.push(repository(host.folder / "repository"))
    return found


def with_a_gpu(where: Path, command: str) -> None:
    """The GPU of the runner that measures: in place of what a bundle's program would do, what it would write."""
    if not command.startswith("./run"):
        return
    Project(where).results(read_bundle(where / "bundle.json"), by_prediction)
    (where / "run").unlink()
    (where / "run").write_text('#!/bin/sh\n[ "$*" = "--results results.jsonl" ]\n')
    (where / "run").chmod(0o755)


@pytest.fixture(scope="module")
def tuned(hosts: tuple[Host, Host]) -> tuple[Host, Host]:
    """Both have measured, and the lock that was proposed is merged."""
    github, gitlab = hosts
    run_github(github, pipeline("github-tune.yml"), {"recipe": "recipes/gpu.yaml", "target": "a100"}, {})
    tuned = {"TUNED_RECIPE": "recipes/gpu.yaml", "TUNED_TARGET": "a100"}
    run_gitlab(gitlab, pipeline("gitlab-ci.yml"), ("compile", "measure", "propose"), tuned)
    for host in hosts:
        git(host.remote, "update-ref", "refs/heads/main", "refs/heads/lock-7")
    return hosts


@pytest.fixture(scope="module")
def finished(tuned: tuple[Host, Host]) -> tuple[Host, Host]:
    """Both have built, verified and packed with that lock."""
    github, gitlab = tuned
    run_github(github, pipeline("github-engines.yml"), {}, {"RECIPES": "recipes"})
    run_gitlab(gitlab, pipeline("gitlab-ci.yml"), ("engines",), {"RECIPES": "recipes"})
    return tuned


def git(where: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=where, check=True, capture_output=True, text=True).stdout


def test_a_lock_is_proposed_and_nothing_else(tuned: tuple[Host, Host]) -> None:
    for host in tuned:
        assert git(host.remote, "diff", "--name-only", "lock-7~1", "lock-7").split() == ["recipes/gpu.lock"]
        said = git(host.remote, "log", "-1", "--format=%s", "lock-7")
        assert re.fullmatch(r"recipes/gpu.yaml[:,] kernels measured on a100\n", said)
    assert len({git(host.remote, "show", "lock-7:recipes/gpu.lock") for host in tuned}) == 1
    assert (tuned[0].folder / "gh.txt").read_text() == "pr create --fill --base main\n"


def test_engines_are_built_with_the_lock_verified_and_packed(finished: tuple[Host, Host]) -> None:
    """The GPU's on the emulated one."""
    github, gitlab = finished
    kept = (github.folder / "artifacts" / "reports", github.folder / "artifacts" / "engines")
    other = gitlab.folder / "artifacts" / "engines"
    for reports, dist in (kept, (other / "reports", other / "dist")):
        gpu, host = targets(reports / "build.json")
        assert (host["verified"], gpu["verified"]) == (True, None)
        assert (gpu["kernels"]["source"], gpu["kernels"]["predicted"]) == ("lock", 0)
        (emulated,) = targets(reports / "emulate.json")
        assert emulated["verified"] is True
        cases = [case for name in ("build.xml", "emulate.xml") for case in xml.parse(reports / name).iter("testcase")]
        assert len(cases) > 8
        assert not any(case.findall("failure") or case.findall("error") for case in cases)
        names = {re.sub(r"-0.*", "", path.name) for path in dist.iterdir()}
        assert names == {
            "net-host.tar.gz", "net-host-debug.tar.gz", "net_host",
            "gpu-a100.tar.gz", "gpu-a100-debug.tar.gz", "gpu_a100",
        }  # fmt: skip
    assert (github.folder / "summary.md").read_text().count("### bolt-build ") == 3
    assert json.loads((other / "reports" / "quality.json").read_text()) == []


def targets(report: Path) -> list[dict[str, Any]]:
    data = json.loads(report.read_text())
    assert data["exit_code"] == 0
    return [target for recipe in data["recipes"] for target in recipe["targets"]]


def test_what_one_has_compiled_the_other_takes_from_the_cache(finished: tuple[Host, Host]) -> None:
    report = json.loads((finished[1].folder / "artifacts" / "engines" / "reports" / "build.json").read_text())
    tasks = [task for recipe in report["recipes"] for task in recipe["tasks"]]
    compiles = [task for task in tasks if task["label"].startswith("compile ")]
    assert compiles
    assert [task["label"] for task in compiles if not task["cached"]] == []


def test_every_command_was_run(finished: tuple[Host, Host]) -> None:
    github, gitlab = finished
    steps = [
        step["run"]
        for name in ("github-tune.yml", "github-engines.yml")
        for job in pipeline(name)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert github.ran == steps
    data = pipeline("gitlab-ci.yml")
    jobs = [job for job in data.values() if isinstance(job, dict)]
    lines = {line for job in jobs for key in ("before_script", "script") for line in job.get(key, [])}
    assert set(gitlab.ran) == lines

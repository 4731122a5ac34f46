"""A CI service that runs the pipelines of `ci/`, so far as they ask for one: jobs, steps, artifacts and a cache.

The commands are run as they stand. In their place come only: the machine's packages (pip finds what the tests have
installed), a checkout, a remote repository, and `gh`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "ci"
_PATIENCE_SECONDS = 900
_EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")


def pipeline(name: str) -> dict[str, Any]:
    """A file of `ci/`, parsed."""
    data: dict[str, Any] = yaml.safe_load((CI / name).read_text(encoding="utf-8"))
    return data


@dataclass
class Host:
    """A service with a repository. Jobs share `artifacts`, and each starts from a checkout of its own.

    `before` is called with a job's directory before each of its commands. `ran` are the commands, `said` what they
    printed.
    """

    folder: Path
    cache: Path
    before: Callable[[Path, str], None] = lambda path, command: None
    ran: list[str] = field(default_factory=list)
    said: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.programs = environment(self.folder / "environment")
        gh = self.programs / "gh"
        gh.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/gh.txt\n')
        gh.chmod(0o755)
        self.remote = self.folder / "remote.git"

    def push(self, repository: Path) -> None:
        """Make the contents of a directory the repository, with a branch `main`."""
        _git(repository, "init", "-q", "-b", "main")
        _git(repository, "add", "-A")
        _git(repository, "commit", "-q", "-m", "first")
        _git(self.folder, "clone", "-q", "--bare", str(repository), str(self.remote))
        _git(self.remote, "config", "receive.advertisePushOptions", "true")

    def checkout(self, name: str) -> Path:
        path = self.folder / "work" / name
        shutil.rmtree(path, ignore_errors=True)
        _git(self.folder, "clone", "-q", str(self.remote), str(path))
        (path / ".bolt-cache").symlink_to(self.cache)
        return path

    def command(self, text: str, where: Path, variables: Mapping[str, str]) -> None:
        """Run a step's text as both services do. Fails where the step does."""
        self.before(where, text)
        around = os.environ | dict(variables) | {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            # What the tests have installed is there; the project alone is built and installed, into the environment.
            "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_IGNORE_INSTALLED": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # Nothing may come from the cache of the one who runs the tests.
            "XDG_CACHE_HOME": str(self.folder / "nobody's"), "GIT_CONFIG_GLOBAL": os.devnull,
        }  # fmt: skip
        around.pop("PYTHONPATH", None)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text], cwd=where, env=around,
            capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
        self.ran.append(text)
        self.said += done.stdout + done.stderr
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


def environment(folder: Path) -> Path:
    """A virtual environment that sees what the tests have installed, and has none of it itself. Returns where its
    programs are."""
    venv.create(folder, symlinks=True, with_pip=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    return folder / "bin"


def run_github(host: Host, data: Mapping[str, Any], inputs: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """All jobs of a workflow, in the order of the file, which is that of `needs`."""
    summary = host.folder / "summary.md"
    around = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_RUN_ID": "7", "GITHUB_REF_NAME": "main"}
    given = {f"inputs.{name}": text for name, text in inputs.items()} | {"github.token": "t", "runner.os": "Linux"}
    done: list[str] = []
    for name, job in data["jobs"].items():
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(done)
        where = None
        for step in job["steps"]:
            if "run" not in step:
                where = _action(host, step, name, where)
                continue
            where = where or _empty(host, name)
            values = {**around, **_filled(data["env"], given), **_filled(step.get("env", {}), given), **variables}
            host.command(step["run"], where, values)
        done.append(name)


def _action(host: Host, step: Mapping[str, Any], job: str, where: Path | None) -> Path | None:
    action, settings = step["uses"].partition("@")[0], step.get("with", {})
    if action == "actions/checkout":
        return host.checkout(job)
    if action in ("actions/setup-python", "actions/cache/restore", "actions/cache/save"):
        return where
    where = where or _empty(host, job)
    kept = host.folder / "artifacts" / settings["name"]
    if action == "actions/download-artifact":
        shutil.copytree(kept, where, dirs_exist_ok=True)
        return where
    assert action == "actions/upload-artifact", action
    # Of a folder the contents are kept, and of files the files.
    found = where / settings["path"]
    kept.mkdir(parents=True, exist_ok=True)
    if found.is_dir():
        shutil.copytree(found, kept, dirs_exist_ok=True)
    else:
        shutil.copy(found, kept)
    return where


def run_gitlab(host: Host, data: Mapping[str, Any], jobs: Sequence[str], variables: Mapping[str, str]) -> None:
    """These jobs of a pipeline, one after the other; lines of a script share a shell, but no line changes it."""
    around = {
        "CI_DEFAULT_BRANCH": "main", "CI_PIPELINE_ID": "7", "CI_SERVER_HOST": "git.invalid",
        "CI_PROJECT_PATH": "group/engines", "PUSH_TOKEN": "t",
        # The service's address is the remote repository here.
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{host.remote}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://oauth2:t@git.invalid/group/engines.git",
    }  # fmt: skip
    for name in jobs:
        job = {**data.get(data[name].get("extends", ""), {}), **data[name]}
        own = job.get("variables", {})
        where = _empty(host, name) if own.get("GIT_STRATEGY") == "none" else host.checkout(name)
        for needed in job.get("needs", []):
            shutil.copytree(host.folder / "artifacts" / needed, where, dirs_exist_ok=True)
        for line in (*job.get("before_script", []), *job["script"]):
            host.command(line, where, {**around, **data["variables"], **own, **variables})
        if "artifacts" in job:
            _kept_by_paths(host.folder / "artifacts" / name, where, job["artifacts"]["paths"])


def _empty(host: Host, job: str) -> Path:
    path = host.folder / "work" / job
    path.mkdir(parents=True, exist_ok=True)
    return path


def _kept_by_paths(kept: Path, where: Path, paths: Sequence[str]) -> None:
    """As GitLab keeps artifacts."""
    for text in paths:
        found = where / text
        if found.is_dir():
            shutil.copytree(found, kept / text.strip("/"), dirs_exist_ok=True)
        else:
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, kept)


def _filled(values: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    return {name: _EXPRESSION.sub(lambda found: given[found[1]], text) for name, text in values.items()}


def _git(where: Path, *words: str) -> None:
    name = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    subprocess.run(["git", *name, *words], cwd=where, check=True, capture_output=True)

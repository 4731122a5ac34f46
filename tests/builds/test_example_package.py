"""The package in `examples/`, as pip installs its wheel: what it adds is found, built, verified and counted in keys."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from recipe_projects import RECIPE, ROOT, write_model
from shared_folders import SharedFolder

from bolt_build.errors import ExitCode

EXAMPLE = ROOT / "examples" / "bolt-build-example"
PATIENCE_SECONDS = 600
EACH = """\
import json, sys
from bolt_build.cli.main import main
for words in json.loads(sys.argv[1]):
    if code := main(words):
        sys.exit(code)
    print(end="\\0", flush=True)
"""


@pytest.fixture(scope="module")
def site(shared_folder: SharedFolder) -> Path:
    """A folder that the package is installed in, from the wheel that pip makes of it."""
    # Without its build system in this environment, pip gets it from the index.
    here = ("--no-build-isolation",) if importlib.util.find_spec("hatchling") is not None else ()
    with shared_folder("example") as folder:
        found = folder / "site"
        if not found.is_dir():
            argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *here, "--target", found, EXAMPLE]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
            assert done.returncode == 0, done.stderr
    return found


@dataclass(frozen=True)
class Place:
    """A folder to build in, with packages found in `site`."""

    path: Path
    site: Path
    cache: Path

    def bolt(self, *words: str, site: Path | None = None) -> str:
        """What bolt-build prints."""
        (said,) = self.each(words, site=site)
        return said

    def each(self, *commands: Sequence[str], site: Path | None = None) -> list[str]:
        """What bolt-build prints of each command, one after the other in one process: every process imports all."""
        path = os.pathsep.join((str(site or self.site), str(ROOT)))
        done = subprocess.run(
            [sys.executable, "-c", EACH, json.dumps(commands)], cwd=self.path, capture_output=True, text=True,
            check=False, timeout=PATIENCE_SECONDS,
            env=os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(self.cache)},
        )  # fmt: skip
        assert done.returncode == ExitCode.OK, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout.split("\0")[:-1]

    def stale(self, recipe: str, *words: str, site: Path | None = None) -> dict[str, list[str]]:
        """Why each task of the recipe would run."""
        shown = self.bolt(recipe, "--dry-run", "--format", "json", *words, site=site)
        tasks = json.loads(shown.splitlines()[-1])["tasks"]
        return {f"{task['target']}: {task['label']}": task["reasons"] for task in tasks}


@pytest.fixture
def place(tmp_path: Path, site: Path, cache_home: Path) -> Place:
    recipe = (EXAMPLE / "recipes" / "prototypes.yaml").read_text().replace("[1, 4]", "[4]")
    (tmp_path / "prototypes.yaml").write_text(recipe)
    return Place(tmp_path, site, cache_home)


def upgraded(site: Path, folder: Path, version: str, *edits: tuple[str, str, str]) -> Path:
    """The installed package of another version, with `edits` (file, text, another text), in another folder."""
    shutil.copytree(site, folder)
    (old,) = folder.glob("*.dist-info")
    text = (old / "METADATA").read_text()
    assert "\nVersion: 1.0\n" in text
    (old / "METADATA").write_text(text.replace("\nVersion: 1.0\n", f"\nVersion: {version}\n"))
    old.rename(folder / f"bolt_build_example-{version}.dist-info")
    for name, before, after in edits:
        path = folder / "bolt_build_example" / name
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))
    return folder


def test_doctor_lists_one_of_everything(place: Place) -> None:
    shown = place.bolt("doctor", "--target", "toy", "--format", "json")
    report = json.loads(shown)
    assert report["packages"] == [
        {
            "name": "bolt-build-example",
            "version": "1.0",
            "adds": [
                "operator 'distances'", "kernel family 'nearest'", "pass 'negate-distances'", "target 'toy'",
                "tool 'toycc'", "zoo model 'prototypes'", "peer 'numpy'",
            ],
            "problems": [],
        }
    ]  # fmt: skip
    assert [(tool["name"], tool["version"]) for tool in report["tools"]][1] == ("toycc", "1.0")


def test_its_operator_has_kernels_on_targets_that_were_there_before(place: Place) -> None:
    """And its pass runs: of the negation nothing is left."""
    for shown in place.each(*(("plan", "prototypes.yaml", "--target", target) for target in ("h200", "host", "toy"))):
        (line,) = [line for line in shown.splitlines() if " distances " in line and "algorithm" in line]
        assert "nearest algorithm=direct" in line
        assert "negate-distances: distance: negated (near is an attribute of it)" in shown


def test_engines_with_all_of_it(place: Place, tmp_path: Path) -> None:
    """Built, verified against onnxruntime, raced against the package's peer; and built again for what changed alone."""
    (tmp_path / "tiny.yaml").write_text(RECIPE.replace("[1, 3]", "1"))
    write_model(tmp_path / "tiny.onnx")
    here = ("--target", "host", "--target", "toy")
    race = ("bench", "prototypes.yaml", "--target", "host", "--against", "numpy", "--rounds", "1")
    _, _, raced = place.each(("prototypes.yaml", *here), ("tiny.yaml",), race)
    for target in ("host", "toy"):
        verified = json.loads((tmp_path / "generated/prototypes" / target / "verify.json").read_text())
        assert verified["ok"] is True
    assert (tmp_path / "generated/prototypes/toy/src/plan_b4.toy").is_file()
    assert "bolt_nearest::softmax" in (tmp_path / "generated/prototypes/toy/src/plan_b4.toy").read_text()

    assert "numpy" in raced

    # The same package in another folder is the same package.
    moved = shutil.copytree(place.site, tmp_path / "moved")
    assert place.stale("prototypes.yaml", *here, site=moved) == {}

    # A header of its kernels is compiled again where it is used, and what is verified with it.
    header = ("include/bolt_nearest/distances.h", "apart * apart", "(apart * apart)")
    newer = upgraded(place.site, tmp_path / "newer", "1.1", header)
    why = ["package bolt-build-example changed 1.0 -> 1.1"]
    stale = place.stale("prototypes.yaml", *here, site=newer)
    assert stale["host: compile plan_b4.cpp"] == stale["toy: compile plan_b4.toy"] == why
    assert not any("operators.cpp" in label or "core.cpp" in label for label in stale)
    assert place.stale("tiny.yaml", site=newer) == {}, "nothing of the package is in it"

    # Its compiler is a tool as others are.
    driver = ("bin/toycc", "toycc 1.0", "toycc 1.1")
    other = upgraded(place.site, tmp_path / "other", "1.0", driver)
    stale = place.stale("prototypes.yaml", *here, site=other)
    assert "toycc changed 1.0 -> 1.1" in stale["toy: compile plan_b4.toy"]

"""What `pytest -m quick` takes, and what holds it quick."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from quick_tests import SLOW, STAGES, is_left_out, is_quick, starts_nothing

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FILES = ("graph/test_graph_windows.py", "repository/test_quick_tests.py", "gpu/test_gpu_tuning.py")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_quick_tests(stage: str) -> None:
    files = [*TESTS.rglob(f"test_{stage}.py"), *TESTS.rglob(f"test_{stage}_*.py")]
    assert any(is_quick(path) for path in files)


@pytest.mark.parametrize("module", SLOW)
def test_a_file_that_brings_what_is_slow_is_left_out(module: str, tmp_path: Path) -> None:
    for index, line in enumerate((f"import {module}", f"from {module} import x", f"import {module}.x", "import os")):
        path = tmp_path / f"test_graph_{index}.py"
        path.write_text(f"def f() -> None:\n    {line}\n")
        assert is_quick(path) == (line == "import os")


@pytest.mark.parametrize(
    "around",
    [
        "if x:\n    pass\nelse:\n    {}", "for y in x:\n    pass\nelse:\n    {}",
        "try:\n    pass\nexcept OSError:\n    {}",
        "try:\n    pass\nfinally:\n    {}", "with x:\n    {}", "match x:\n    case 1:\n        {}", "class X:\n    {}",
    ],
)  # fmt: skip
def test_wherever_it_brings_that(around: str, tmp_path: Path) -> None:
    path = tmp_path / "test_graph_x.py"
    path.write_text(around.format(f"import {SLOW[0]}") + "\n")
    assert not is_quick(path)


def test_files_of_other_stages_are_left_out(tmp_path: Path) -> None:
    for name, quick in (
        ("test_graph.py", True),
        ("test_graphs.py", False),
        ("graph_x.py", False),
        ("test_x.py", False),
    ):
        (tmp_path / name).touch()
        assert is_quick(tmp_path / name) is quick


def test_a_quick_test_cannot_start_a_process() -> None:
    with (
        starts_nothing("graph::x"),
        pytest.raises(RuntimeError, match=r"^the quick test graph::x starts a process: move it to"),
    ):
        subprocess.run(["true"], check=True)
    subprocess.run(["true"], check=True)


def test_the_marker_takes_these_files_and_no_others() -> None:
    command = [sys.executable, "-m", "pytest", "-m", "quick", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(f"tests/{file}" for file in FILES)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    taken = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert taken == {"tests/graph/test_graph_windows.py"}, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("expression", "read"),
    [("not gpu and not large", FILES[:2]), ("quick", FILES[:1]), ("gpu", FILES)],
)
def test_files_of_which_no_test_can_be_chosen_are_not_read(expression: str, read: Sequence[str]) -> None:
    assert [name for name in FILES if not is_left_out(TESTS / name, expression)] == list(read)

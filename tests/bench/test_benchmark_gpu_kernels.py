"""What the script that runs all kernels on a GPU does around it: processes that crash, and the result."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def outcome(index: int, error: float = 0.5, message: str = "") -> list[Any]:
    return [index, f"kernel {index}", str(error), message, f"layer {index}"]


def crashing(folder: Path, *bad: int) -> Callable[[int, int], tuple[int, str]]:
    """Runs kernels as a process does that ends at a `bad` one."""
    from benchmarks.correctness.gpu_kernels import outcomes_file

    def run(begin: int, end: int) -> tuple[int, str]:
        ran = [index for index in range(begin, end) if not any(begin <= at <= index for at in bad)]
        outcomes_file(folder, begin).write_text("".join(json.dumps(outcome(index)) + "\n" for index in ran))
        return (0, "") if len(ran) == end - begin else (-6, "died")

    return run


@pytest.mark.parametrize("bad", [(), (4,), (4, 5), (3, 8), (3, 4, 5, 6, 7, 8)])
def test_a_crash_loses_one_kernel(tmp_path: Path, bad: tuple[int, ...]) -> None:
    from benchmarks.correctness.gpu_kernels import chunk

    outcomes, crashed = chunk(tmp_path, 3, 9, crashing(tmp_path, *bad))
    assert [line[0] for line in outcomes] == [index for index in range(3, 9) if index not in bad]
    assert crashed == [[index, -6, "died"] for index in bad]


def test_kernels_run_where_those_of_this_checkout_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.correctness import gpu_kernels

    monkeypatch.setattr(gpu_kernels, "small", lambda only: [name for name in ("one", "two") if only in name])
    said = f"^run: the kernels of this checkout are not compiled in {tmp_path}: compile them first$"
    for kept in (None, ["one"], ["one", "three"]):
        if kept is not None:
            (tmp_path / "kernels.so").touch()
            (tmp_path / "trials.pkl").write_bytes(pickle.dumps(kept))
        with pytest.raises(SystemExit, match=said):
            gpu_kernels.compiled(tmp_path, "")
    (tmp_path / "trials.pkl").write_bytes(pickle.dumps(["one", "two"]))
    assert gpu_kernels.compiled(tmp_path, "") == 2
    (tmp_path / "trials.pkl").write_bytes(pickle.dumps(["two"]))
    assert gpu_kernels.compiled(tmp_path, "two") == 1


def test_a_process_that_wrote_nothing_lost_its_first_kernel(tmp_path: Path) -> None:
    from benchmarks.correctness.gpu_kernels import chunk

    assert chunk(tmp_path, 0, 2, lambda begin, end: (-1, "took more than 300 s")) == (
        [], [[0, -1, "took more than 300 s"], [1, -1, "took more than 300 s"]],
    )  # fmt: skip


def test_wrong_are_those_beyond_what_is_allowed_and_those_that_said_something() -> None:
    from benchmarks.correctness.gpu_kernels import judged

    found = judged(9, [outcome(0, 0.1), outcome(1, 1.5), outcome(2, 0.9), outcome(3, 0.0, "wrote between rows"),
                       outcome(4, float("nan"))], [[5, -6, ""]])  # fmt: skip
    assert [line[0] for line in found["wrong"]] == [1, 3, 4]
    assert [line[0] for line in found["worst"]] == [2, 0]
    assert (found["of"], found["ran"], found["crashed"]) == (9, 5, [[5, -6, ""]])


def trial(index: int, family: str = "cutlass", kind: str = "F16") -> Any:
    """As much of a trial as is counted."""
    output = SimpleNamespace(format=SimpleNamespace(dtype=SimpleNamespace(name=kind)))
    step = SimpleNamespace(problem=SimpleNamespace(outputs=[output]))
    return SimpleNamespace(label=f"kernel {index}", step=step, candidate=SimpleNamespace(family=family))


def test_the_result_counts_kernels_and_names_those_that_were_wrong() -> None:
    from benchmarks.correctness.gpu_kernels import closed, judged

    kernels = [trial(0), trial(1, kind="BF16"), trial(2, "portable", "I64"), trial(3)]
    found = judged(4, [outcome(0, 0.12345), outcome(1, 2.5), outcome(2, 0.5)], [[3, -11, "died"]])
    assert closed(found, kernels) == {
        "kernels": 4, "ran": 3,
        "wrong": [{"kernel": "kernel 1", "error": "2.5", "message": ""}],
        "crashed": [{"kernel": "kernel 3", "status": -11}],
        "worst": [{"kernel": "kernel 2", "error": 0.5}, {"kernel": "kernel 0", "error": 0.123}],
        "families": {"cutlass": {"bf16": 1, "f16": 2}, "portable": {"i64": 1}},
    }  # fmt: skip


@pytest.mark.parametrize("there", [[trial(0)], [trial(1), trial(0)]])
def test_kernels_of_another_checkout_are_not_counted(there: list[Any]) -> None:
    from benchmarks.correctness.gpu_kernels import closed, judged

    found = judged(2, [outcome(0), outcome(1)], [])
    said = f"these are not the 2 kernels that ran, but {len(there)} of another checkout"
    with pytest.raises(ValueError, match=f"^{said}$"):
        closed(found, there)

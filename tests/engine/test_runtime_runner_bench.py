"""The runner program's `--bench`: what it measures, with one caller or several, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from runner_programs import X, run, tiny_runner


@pytest.fixture(scope="module")
def tiny() -> Path:
    return tiny_runner()


def test_bench_as_json(tiny: Path) -> None:
    code, out, error = run(tiny, "--bench", "--runs", 5, "--batch", 4, "--threads", 1, "--json")
    assert (code, error) == (0, "")
    found = json.loads(out)
    fixed = {"name": "tiny", "target": "host", "batch": 4, "threads": 1, "inputs": "random", "runs": 5}
    assert {key: found[key] for key in fixed} == fixed
    assert found["warmup_runs"] >= 3
    assert 0 < found["min_ms"] <= found["median_ms"]
    assert found["images_per_second"] == pytest.approx(4000 / found["median_ms"], rel=1e-3)
    assert found["context_bytes"] == 576


@pytest.mark.parametrize(("runs", "borne"), [(99, False), (100, True)])
def test_bench_names_a_quantile_that_the_number_of_runs_bears(tiny: Path, runs: int, borne: bool) -> None:
    words = ("--bench", "--runs", runs, "--batch", 1, "--threads", 1)
    found = json.loads(run(tiny, *words, "--json")[1])
    assert (found["p99_ms"] is not None and found["p99_ms"] >= found["median_ms"]) == borne
    assert (" ms   p99 " in run(tiny, *words)[1]) == borne


def test_bench_with_several_callers(tiny: Path) -> None:
    """All of them together do so many runs; what they reach is of the time that passed."""
    words = ("--bench", "--runs", 200, "--batch", 4, "--threads", 1, "--callers", 3)
    found = json.loads(run(tiny, *words, "--json")[1])
    assert (found["callers"], found["rate"], found["runs"], found["context_bytes"]) == (3, None, 200, 576)
    assert found["warmup_runs"] >= 9
    quantiles = [found[f"{name}_ms"] for name in ("min", "median", "p90", "p99", "max")]
    assert quantiles == sorted(quantiles)
    assert found["requests_per_second"] == pytest.approx(200 / found["seconds"], rel=1e-3)
    assert found["images_per_second"] == pytest.approx(800 / found["seconds"], rel=1e-3)
    assert found["ended"] - found["began"] == pytest.approx(found["seconds"], abs=1e-5)
    assert found["copy_in_ms"] is None
    assert found["resident_bytes"] > 1_000_000
    assert run(tiny, *words)[1].splitlines()[0] == "tiny for host, batch 4, 1 thread(s), 3 callers, random inputs"


def test_requests_come_in_by_themselves(tiny: Path) -> None:
    """So many a second on average, the same moments each time; the time that a request waits is part of its own."""
    words = ("--bench", "--batch", 1, "--threads", 1, "--json", "--rate", 1000)
    found = json.loads(run(tiny, *words, "--runs", 300)[1])
    assert (found["rate"], found["runs"]) == (1000, 300)
    assert found["seconds"] >= 0.2
    assert found["requests_per_second"] == pytest.approx(1000, rel=0.4)
    flood = json.loads(run(tiny, *words[:-1], 1e6, "--runs", 5000)[1])
    # They come within some 5 ms, so the last has waited while the others ran.
    assert flood["max_ms"] >= 1e3 * flood["seconds"] - 10


def test_bench_for_people_says_what_it_did(tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    code, out, _ = run(tiny, "--bench", "--seconds", 0.01, "--input", tmp_path / "x.npy")
    assert code == 0
    assert out.splitlines()[0] == "tiny for host, batch 4, all threads, given inputs"
    assert "runs after a warm-up of" in out.splitlines()[2]

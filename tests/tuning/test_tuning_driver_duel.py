"""Two engines against each other: samples in turns, and when it is known which is faster."""

from __future__ import annotations

import functools
import statistics
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_folders import entered
from tuning_fakes import DATA

from bolt_build.tuning.compile import glue


@functools.cache
def program() -> Path:
    with entered("tuning-duel") as folder:
        return _compiled(folder / "duel")


def _compiled(path: Path) -> Path:
    """Once for all workers."""
    if path.exists():
        return path
    sources = [path for path in glue.driver_sources() if path.name in ("duel.cpp", "lines.cpp")]
    flags = ("-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", f"-I{sources[0].parent}", f"-I{glue.include_dir()}")
    argv = ["g++", *flags, *map(str, sources), str(DATA / "duel.cpp"), "-o", str(path)]
    subprocess.run(argv, check=True)
    return path


class Duel:
    """`order` is which of the two was asked for; times are microseconds, `gain` as (median, low, high)."""

    def __init__(self, first: list[float], second: list[float], *, cap: float = 1e9, launches: int = 1) -> None:
        most = len(first)
        text = f"{min(12, most)} {most} {cap} {launches}\n" + "\n".join(
            " ".join(map(repr, row)) for row in (first, second)
        )
        done = subprocess.run([program()], input=text, capture_output=True, text=True, check=True)
        self.order, line = done.stdout.splitlines()
        fields = line.split("\t")
        assert fields[:3] == ["compared", "ok", "go"]
        numbers = [float(field) for field in fields[3:19]]
        self.first, self.second, self.gain, self.pairs = numbers[:6], numbers[6:12], numbers[12:15], int(numbers[15])


def test_turns_change_from_pair_to_pair() -> None:
    assert Duel([1e-3] * 12, [0.9e-3] * 12).order == "0110" * 6


def test_what_is_quiet_is_decided_after_the_least_pairs() -> None:
    found = Duel([1e-3] * 48, [0.9e-3] * 48)
    assert (found.pairs, found.gain) == (12, [pytest.approx(0.1)] * 3)
    assert (found.first[0], found.second[0]) == (pytest.approx(1000.0), pytest.approx(900.0))


def test_what_is_noisy_takes_more() -> None:
    found = Duel([1e-3, 1.02e-3, 0.98e-3] * 16, [1e-3] * 48)
    assert found.pairs == 48


def test_what_is_clearly_slower_is_given_up_early() -> None:
    assert Duel([1e-3] * 48, [1.1e-3, 1.01e-3] * 24).pairs == 8


def test_what_takes_long_is_decided_with_what_there_is() -> None:
    assert Duel([1.0, 1.02] * 24, [0.99, 1.0] * 24, cap=5.0).pairs == 8
    assert Duel([0.1, 0.102] * 24, [0.099, 0.1] * 24, cap=5.0, launches=2).pairs == 13


def test_what_is_slower_beyond_doubt_is_not_measured_to_the_end() -> None:
    # Two of five pairs say otherwise, so the quartiles alone do not give it up.
    found = Duel([1e-3] * 50, [0.9995e-3, 1.004e-3, 0.9995e-3, 1.006e-3, 1.006e-3] * 10)
    assert found.gain[2] > 0
    assert 12 <= found.pairs < 50


def test_drift_of_the_clock_does_not_count() -> None:
    slower = [1e-3 * 1.001**at for at in range(24)]
    found = Duel(slower, slower)
    assert found.gain == [0.0, 0.0, 0.0]


@given(st.lists(st.tuples(st.floats(1e-4, 1e-2), st.floats(1e-4, 1e-2)), min_size=8, max_size=24))
def test_the_gain_is_the_median_of_pairs_between_its_quartiles(pairs: list[tuple[float, float]]) -> None:
    found = Duel([a for a, _ in pairs], [b for _, b in pairs])
    gains = [(a - b) / a for a, b in pairs[: found.pairs]]
    quartiles = statistics.quantiles(gains, n=4, method="inclusive")
    assert found.gain == pytest.approx([quartiles[1], quartiles[0], quartiles[2]], rel=1e-6, abs=1e-9)
    for times, samples in ((found.first, [a for a, _ in pairs]), (found.second, [b for _, b in pairs])):
        used = samples[: found.pairs]
        assert times[0] == pytest.approx(1e6 * statistics.median(used), rel=1e-6)
        assert times[1:3] == pytest.approx([1e6 * min(used), 1e6 * max(used)], rel=1e-6)

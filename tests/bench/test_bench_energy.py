"""Energy of a device while another process runs on it."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.bench.energy import EnergyLog, at, cpu_counter, gpu_counter


@given(st.floats(0, 100), st.floats(1, 500))
def test_between_two_readings_it_grows_evenly(moment: float, watts: float) -> None:
    read = [(float(second), watts * second) for second in range(101)]
    assert at(read, moment) == pytest.approx(watts * moment)
    assert at(read, -0.1) is None
    assert at(read, 100.1) is None
    assert at([], moment) is None


def test_a_log_says_what_was_used_meanwhile() -> None:
    """Nothing of a time that is too short for the counter, or that it did not see."""
    begun = time.monotonic()
    with EnergyLog(lambda: 40 * (time.monotonic() - begun)) as log:
        time.sleep(0.7)
    ended = time.monotonic()
    assert log.between(begun + 0.1, begun + 0.65) == pytest.approx(22, rel=0.2)
    assert log.between(begun + 0.1, begun + 0.2) is None
    assert log.between(begun - 1, begun + 0.6) is None
    assert log.between(begun + 0.1, ended + 1) is None


def test_the_packages_of_a_cpu(tmp_path: Path) -> None:
    """Their sum, without what is part of a package; a counter that begins again is followed."""
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text("3000000\n")
        (tmp_path / name / "max_energy_range_uj").write_text("10000000\n")
    counter = cpu_counter(tmp_path)
    assert not isinstance(counter, str)
    assert counter() == pytest.approx(6)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("1000000\n")
    assert counter() == pytest.approx(3 + 11)


def test_why_there_is_none(tmp_path: Path) -> None:
    assert cpu_counter(tmp_path) == f"no energy: {tmp_path} has no counter of this CPU"

    class Driver:
        def __getattr__(self, name: str) -> object:
            if name == "cuGetErrorString":
                return lambda status, text: 0
            return lambda *arguments: 100

    assert gpu_counter(Driver(), ctypes.CDLL) == "no energy: cuInit: unknown error (100)"

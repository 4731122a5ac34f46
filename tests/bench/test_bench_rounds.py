"""What a contestant measures in its turn, on a device whose time passes as the test says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.bench import rounds
from bolt_build.bench.comparison import Performance, measured
from bolt_build.bench.contestant import Effort
from bolt_build.bench.device import Buffer, DeviceState
from bolt_build.bench.process import Ready
from bolt_build.bench.rounds import Round, Sustained, measure_round
from bolt_build.graph.ir import Array
from bolt_build.sizes import Sizes


class FakeGpu:
    """Each run takes `run_ms` of a clock that stands still otherwise, and uses `watts` while it does."""

    name = "fake"
    where = "cuda"
    no_energy: str | None = None

    def __init__(self, run_ms: float, watts: float | None, queues: bool = True) -> None:
        self.run_ms, self.watts, self.queues = run_ms, watts, queues
        self.now = 100.0
        self.waits = 0

    def new_stream(self) -> int:
        return 7

    def buffer(self, nbytes: int) -> Buffer:
        raise AssertionError("a round needs no memory")

    def milliseconds(self, run: Callable[[], None], stream: int) -> float:
        assert stream == 7
        begun = self.now
        run()
        return 1e3 * (self.now - begun)

    def wait(self) -> None:
        self.waits += 1

    def held_bytes(self) -> int:
        return 0

    def joules(self) -> float | None:
        return None if self.watts is None else self.watts * self.now

    def state(self) -> DeviceState:
        return DeviceState(1980, 40)


class Running:
    precision, form, compile_seconds, stream = "fp16", "f16 channels_last", None, 7

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.runs = gpu, 0

    def run(self) -> None:
        self.runs += 1
        self.gpu.now += self.gpu.run_ms / 1e3

    def settle(self) -> None:
        raise AssertionError("a round is no time to settle")

    def outputs(self) -> dict[str, Array]:
        raise AssertionError("outputs are read at the end")


def measure(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, effort: Effort) -> tuple[Round, int]:
    monkeypatch.setattr(rounds.time, "monotonic", lambda: gpu.now)
    running = Running(gpu)
    return measure_round(running, gpu, effort), running.runs


def test_a_quick_model_has_all_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(run_ms=1.0, watts=500.0)
    turn, runs = measure(gpu, monkeypatch, Effort(runs=50, seconds=0.2))
    assert turn.times_ms == pytest.approx([1.0] * 50)
    assert turn.state == DeviceState(1980, 40)
    assert turn.sustained is not None
    assert turn.sustained.seconds == pytest.approx(0.2)
    assert turn.sustained.joules == pytest.approx(500.0 * 0.2)
    assert runs == rounds.WARM_UP_RUNS + 50 + turn.sustained.runs
    assert turn.sustained.runs == 200


def test_a_slow_model_has_few_but_some(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(run_ms=2000.0, watts=None, queues=False)
    turn, runs = measure(gpu, monkeypatch, Effort(runs=50, seconds=1.0))
    assert turn.times_ms == pytest.approx([2000.0] * 5)
    assert turn.sustained is None
    assert runs == 2 + 5


def test_time_that_is_up_ends_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(run_ms=50.0, watts=None, queues=False)
    turn, _ = measure(gpu, monkeypatch, Effort(runs=50, seconds=1.0))
    assert len(turn.times_ms) == pytest.approx(20, abs=1)


def test_without_a_count_of_energy_there_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, _ = measure(FakeGpu(run_ms=1.0, watts=None), monkeypatch, Effort(seconds=0.1))
    assert turn.sustained is not None
    assert turn.sustained.joules is None


def shown(name: str, *turns: Round) -> Performance:
    ready = Ready("library 1", "fake", None, "fp16", "f16 channels_last", 2.0, None, 1000)
    return Performance(name, ready, turns, {"y": np.ones((2, 3), np.float32)})


def test_figures_are_of_all_rounds_together() -> None:
    cool, warm = DeviceState(1980, 40), DeviceState(1700, 70)
    engine = shown("engine", Round((1.0, 1.0, 2.0), cool, Sustained(100, 0.1, 50.0)))
    peer = shown(
        "peer",
        Round((3.0, 2.0, 4.0), cool, Sustained(30, 0.1, 60.0)),
        Round((3.0, 9.0, 5.0), warm, Sustained(10, 0.1, 20.0)),
    )
    result = measured(Sizes(8), peer, engine)
    assert (result.runs, result.median_ms, result.min_ms, result.p99_ms) == (6, 3.5, 2.0, None)
    assert result.round_medians_ms == (3.0, 5.0)
    assert result.states == (cool, warm)
    assert result.engine_speedup == 3.5
    assert result.images_per_second == pytest.approx(8 * 1000 / 3.5)
    assert result.sustained_images_per_second == pytest.approx(8 * 40 / 0.2)
    assert result.joules_per_image == pytest.approx(80.0 / (40 * 8))
    assert measured(Sizes(8), engine, engine).engine_speedup == 1.0


def test_a_round_without_energy_leaves_no_figure_of_the_whole() -> None:
    state = DeviceState()
    engine = shown(
        "engine", Round((1.0,), state, Sustained(1, 1.0, 5.0)), Round((1.0,), state, Sustained(1, 1.0, None))
    )
    assert measured(Sizes(1), engine, engine).joules_per_image is None


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=99))
def test_fewer_than_a_hundred_runs_have_no_99th_percentile(times: list[float]) -> None:
    turn = Round(tuple(times), DeviceState(), None)
    assert measured(Sizes(1), shown("engine", turn), shown("engine", turn)).p99_ms is None


@given(st.lists(st.floats(0.01, 1e4), min_size=100, max_size=300))
def test_the_99th_percentile_is_a_time_that_99_in_100_runs_keep_to(times: list[float]) -> None:
    turn = Round(tuple(times), DeviceState(), None)
    p99 = measured(Sizes(1), shown("engine", turn), shown("engine", turn)).p99_ms
    assert p99 is not None
    assert p99 in times
    assert sum(time <= p99 for time in times) >= 0.99 * len(times)
    assert sum(time < p99 for time in times) < 0.99 * len(times)

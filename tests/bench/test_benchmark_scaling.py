"""The simulation of more workers: list scheduling, and what it says of a run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.lists(st.floats(0.1, 50.0), min_size=1, max_size=40)


@given(SECONDS, st.integers(1, 64))
def test_a_stage_takes_no_less_than_its_work_and_its_longest_task_allow(seconds: list[float], slots: int) -> None:
    from benchmarks.tuning.simulated_scaling import COMPILERS, Stage

    stage = Stage("compile", COMPILERS, tuple(seconds))
    span, work, longest = stage.span(slots), sum(seconds), max(seconds)
    assert max(longest, work / slots) <= span + 1e-6
    assert span <= work / slots + longest + 1e-6, "Graham's bound"
    assert stage.span(1) == pytest.approx(work)


def tuning(gpus: int, cached: bool) -> dict[str, Any]:
    """What `scaling.py` keeps of a tuning: two sources of the driver, four kernels, the table, and six problems."""
    names = ["compile-tuning_main", "compile-tuning_lane", *(f"compile-k_{i}" for i in range(4)), "link-run",
             "compile-candidates", "link-candidates"]  # fmt: skip
    tasks = [{"task": n, "ended": 10.0 + i, "seconds": 2.0, "cached": cached} for i, n in enumerate(names)]
    lane = [[30.0 + i, 31.0 + i] for i in range(6 // gpus)]
    return {"tasks": tasks, "lanes": [lane] * gpus, "starts": {"measure": 30.0}}


def test_what_a_tuning_waits_for() -> None:
    from benchmarks.tuning.simulated_scaling import critical_path, simulated, tuning_stages

    seconds = {"plan": 1.0, "engine": 3.0, "select": 0.5}
    recorded = {"tasks": tuning(2, False)["tasks"], "lanes": tuning(1, True)["lanes"]}
    stages = tuning_stages(recorded, {"seconds": seconds}, {"seconds": seconds})
    found = simulated(stages, 2, 2)
    assert found["stages"] == {
        "plan": 1.0, "compile the driver": 2.0, "compile the candidates": 4.0, "link": 6.0, "measure": 3.0,
        "whole engine": 3.0, "choose": 0.5,
    }  # fmt: skip
    assert (found["longest_stage"], found["limit"]) == ("link", "one process")
    one = simulated(stages, 1, 8)
    assert (one["longest_stage"], one["limit"]) == ("compile the candidates", "the number of compilers")
    assert critical_path(stages)["seconds"] == 1.0 + 2.0 + 2.0 + 6.0 + 1.0 + 3.0 + 0.5

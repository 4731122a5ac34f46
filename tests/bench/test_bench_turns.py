"""Engines that scripts time in turns: each in a process of its own, or all in one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_engine import tiny_plan

from bolt_build.bench.contest import inputs_of
from bolt_build.bench.contestant import Effort, PeerFailed, Setup
from bolt_build.bench.opponent import Start
from bolt_build.bench.replays import Entrant, Turn, measured_in_turns
from bolt_build.bench.turns import Entry, order, seated, take_turns
from bolt_build.runtime import names


@pytest.fixture(scope="module")
def library(tiny_library: Path) -> Path:
    return tiny_library


@given(st.integers(1, 6), st.integers(0, 20))
def test_in_as_many_rounds_as_there_are_contestants_each_begins_once(count: int, first: int) -> None:
    rounds = [order(range(count), number) for number in range(first, first + count)]
    assert all(sorted(each) == list(range(count)) for each in rounds)
    assert sorted(each[0] for each in rounds) == list(range(count))


def setup(library: Path, folder: Path) -> Setup:
    plan = tiny_plan()
    np.savez(folder / "inputs.npz", *inputs_of(plan, 4, 1))
    (ports,) = (each.inputs for each in plan.plans if each.batch == 4)
    return Setup(
        "engine", "cpu", "fp32", 4, 1, "", (), str(library), str(library.with_name(names.weights("tiny"))),
        str(folder / "inputs.npz"), tuple(port.name for port in ports), Effort(runs=2, seconds=0.05),
    )  # fmt: skip


def test_engines_take_turns_in_processes_with_their_own_environment(library: Path, tmp_path: Path) -> None:
    own = setup(library, tmp_path)
    entries = {
        "plain": Entry(own), "started": Entry(own, Start(("env", "OMP_WAIT_POLICY=passive"), (("PATH", "/usr/bin"),)))
    }  # fmt: skip
    with seated(entries) as opponents:
        found = take_turns(opponents, 3)
        outputs = {name: each.finish() for name, each in opponents.items()}
    assert {name: [len(each.times_ms) for each in rounds] for name, rounds in found.items()} == {
        "plain": [2, 2, 2], "started": [2, 2, 2]
    }  # fmt: skip
    for name, output in outputs["plain"].items():
        np.testing.assert_array_equal(output, outputs["started"][name])


def test_an_engine_that_does_not_get_ready_is_named_with_what_it_said(library: Path, tmp_path: Path) -> None:
    own = setup(library, tmp_path)
    entries = {"whole": Entry(own), "broken": Entry(replace(own, weights=str(tmp_path / "none.weights")))}
    with pytest.raises(PeerFailed, match=r"^broken: EngineError: "), seated(entries):
        pass


def test_engines_of_one_process_are_timed_in_turns(library: Path) -> None:
    entrants = [Entrant(name, str(library.parent)) for name in ("one", "other")]
    found = measured_in_turns(entrants, 4, rounds=3, turn=Turn(untimed=0, timed=2), where="cpu")
    assert {name: len(times) for name, times in found.ms.items()} == {"one": 6, "other": 6}
    assert found.inputs["one"] == found.inputs["other"] == "f32 row"
    assert set(found.ratio("one", "other")) == {"median", "low", "high"}

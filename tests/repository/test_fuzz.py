"""A few inputs of every kind of `fuzz`, the same ones each time: `benchmarks/endurance/fuzz.py` runs many."""

from __future__ import annotations

from collections.abc import Iterator

import fuzz
import pytest
from fuzzing.case import Limits, cases
from fuzzing.supervisor import Order, Worker

SEED = 0


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    found = Worker(tmp_path_factory.mktemp("fuzz"), Limits())
    yield found
    found.close()


@pytest.mark.parametrize(
    "kind",
    # What reads tables is compiled with sanitizers for `test_tuning_driver_player.py` too, and weights are arrays.
    [
        pytest.param(kind, marks=[pytest.mark.large] if kind in ("driver_tables", "npy_files") else [])
        for kind in fuzz.names()
    ],
)
def test_nothing_of_this_kind_violates(kind: str, worker: Worker) -> None:
    answers = list(worker.run(Order(kind, SEED, 0, fuzz.kind(kind).SHORT)))
    assert [answer.number for answer in answers] == list(range(fuzz.kind(kind).SHORT))
    assert [f"{a.number}, {a.about}: {a.violation}" for a in answers if a.violation is not None] == []


@pytest.mark.parametrize("kind", fuzz.names())
def test_a_seed_and_a_number_are_a_case(kind: str) -> None:
    module = fuzz.kind(kind)
    first = list(cases(kind, module, SEED, 12))
    assert first == list(cases(kind, module, SEED, 12))
    assert first[8:] == list(cases(kind, module, SEED, 4, first=8))
    assert first != list(cases(kind, module, SEED + 1, 12))

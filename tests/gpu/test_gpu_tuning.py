"""On a GPU: every fault of a kernel is a status, the others are measured, and nothing is left running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tuning_faults import EXPECTED, build, complaint, engine_complaints, measured, played

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("faults")
    build(made)
    return made


@pytest.fixture(scope="module")
def records(folder: Path) -> list[dict[str, Any]]:
    return measured(folder, folder / "results.jsonl")


@pytest.mark.parametrize("place", range(len(EXPECTED)), ids=lambda place: f"{place}-{EXPECTED[place][0]}")
def test_a_fault_is_a_status(records: list[dict[str, Any]], place: int) -> None:
    assert len(records) == len(EXPECTED)
    assert complaint(records[place], place) is None


def test_a_fault_in_an_engine_costs_its_swap_alone(folder: Path) -> None:
    found = played(folder, folder / "engines.jsonl")
    assert engine_complaints(found) == []
    engine = found[-1]
    # Two launches of a kernel that reads and writes 4 MB; against itself it gains next to nothing.
    assert 1.0 < engine["first"]["median"] < 100.0
    assert engine["threshold"] < 0.1

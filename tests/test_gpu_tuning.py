"""On a GPU: every fault of a kernel is a status, the others are measured, and nothing is left running."""

from __future__ import annotations

from typing import Any

import pytest
from tuning_faults import EXPECTED, build, complaint, measured

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("faults")
    build(folder)
    return measured(folder, folder / "results.jsonl")


@pytest.mark.parametrize("place", range(len(EXPECTED)), ids=lambda place: f"{place}-{EXPECTED[place][0]}")
def test_a_fault_is_a_status(records: list[dict[str, Any]], place: int) -> None:
    assert len(records) == len(EXPECTED)
    assert complaint(records[place], place) is None

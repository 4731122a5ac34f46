from __future__ import annotations

from collections.abc import Iterator

import pytest
from explored import EXPLORE, explore, load_profile, times
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers


def drawn(factor: int | None) -> list[int]:
    """What a test draws that states three examples."""
    found: list[int] = []

    @settings(max_examples=3)
    @given(number=st.integers(0, 10**12))
    def collect(number: int) -> None:
        found.append(number)

    if factor is not None:
        explore(collect, factor)
    collect()
    return found


@pytest.fixture
def _random_profile() -> Iterator[None]:
    load_profile(random=True)
    yield
    load_profile(random=times() is not None)


@pytest.mark.skipif(times() is not None, reason="explores")
def test_the_same_code_draws_the_same_examples() -> None:
    first = drawn(None)
    assert len(first) == 3
    assert drawn(None) == first


@pytest.mark.skipif(times() is not None, reason="explores")
def test_which_modules_were_imported_changes_no_example() -> None:
    assert len(providers._get_local_constants()) == 0


@pytest.mark.usefixtures("_random_profile")
def test_exploring_draws_others_and_more() -> None:
    first = drawn(20)
    assert len(first) == 60
    assert drawn(20) != first


@pytest.mark.parametrize("asked", ["0", "-1", "1.5", "much"])
def test_what_is_no_factor_is_refused(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXPLORE, asked)
    with pytest.raises(pytest.UsageError) as raised:
        times()
    assert str(raised.value) == (f"BOLT_EXPLORE={asked}: how many times the stated examples: a whole number from 1")


def test_who_does_not_ask_does_not_explore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EXPLORE, raising=False)
    assert times() is None
    monkeypatch.setenv(EXPLORE, "50")
    assert times() == 50

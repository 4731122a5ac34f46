"""What Hypothesis draws: the same examples in every run of the same code, or others on request.

CI must not find in one run what it did not find in the last one of the same code, so examples follow from a test's own
text, and nothing is remembered or timed. `BOLT_EXPLORE=N` draws at random, N times the examples that each test states.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

EXPLORE = "BOLT_EXPLORE"
_SETTINGS = "_hypothesis_internal_use_settings"
"""Where a test has what its decorators state: Hypothesis lets nobody else state more, so only exploring needs it."""


def times() -> int | None:
    """How many times the stated examples are asked for; None where nobody explores."""
    asked = os.environ.get(EXPLORE, "")
    if not asked:
        return None
    if not asked.isdecimal() or int(asked) == 0:
        raise pytest.UsageError(f"{EXPLORE}={asked}: how many times the stated examples: a whole number from 1")
    return int(asked)


def load_profile(random: bool) -> None:
    """Every `settings` of a test made from now on has these, but for what the test states itself."""
    settings.register_profile(
        "bolt",
        derandomize=not random,
        print_blob=random,
        database=None,
        # A third of what Hypothesis draws by itself: examples are the same in each run, and further ones are asked for.
        max_examples=30,
        # What a busy machine may break is no fault of the code.
        deadline=None,
        # Examples that share a test's folder write it anew.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("bolt")
    if not random:
        _draw_no_constants()


def _draw_no_constants() -> None:
    """Hypothesis mixes in what constants the imported modules have: it reads all of them, three seconds in each worker
    of a fresh checkout, and what a worker has imported follows from the tests that it happened to be given."""
    with suppress(ImportError):  # before 6.131 it did not
        from hypothesis.internal.conjecture import providers
        from hypothesis.internal.constants_ast import Constants

        none = Constants()
        providers._get_local_constants = lambda: none


def explore(test: Callable[..., Any], factor: int) -> None:
    """`test` tries `factor` times its examples; a test that Hypothesis does not draw for stays as it is."""
    if is_hypothesis_test(test):
        test = getattr(test, "__func__", test)
        stated = getattr(test, _SETTINGS)
        setattr(test, _SETTINGS, settings(stated, max_examples=factor * stated.max_examples))

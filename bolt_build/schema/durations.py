"""Durations as recipes write them: a number and its unit, "90s", "20min" or "2h"."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "min": 60, "h": 3600}

RULES = {
    "type": "string",
    "$comment": "Without (?!\\n), some readers of regular expressions let a last line break pass.",
    "pattern": "^[1-9][0-9]{0,5}(s|min|h)(?!\\n)$",
    "patternErrorMessage": "a duration is a whole number and its unit: 90s, 20min or 2h",
}
"""What JSON Schema says of them."""


def seconds_of(text: str) -> int:
    """Seconds of a duration that fits the recipe's schema. Raises ValueError for any other text."""
    match = re.fullmatch(r"([1-9][0-9]*)(s|min|h)", text)
    if match is None:
        raise ValueError(f"'{text}' is no duration")
    return int(match[1]) * _SECONDS[match[2]]


def duration_of(seconds: int) -> str:
    """The shortest way to write whole seconds, at least one: `seconds_of` is its inverse."""
    unit = next(unit for unit in ("h", "min", "s") if seconds % _SECONDS[unit] == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"

"""Fields of the lines of a results file, each with the type that it must have. All of these raise DamagedError."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from bolt_build.schema.values import shorten
from bolt_build.tuning.records.kernel_record import Statistics, Status

LONGEST_LINE = 1 << 20
"""Characters: engines of thousands of kernels have lines of some 100,000."""

LARGEST_WHOLE = 2**63 - 1
"""Of a whole number: what records can hold."""


class DamagedError(Exception):
    """What is wrong with a line."""


def json_object(line: str) -> Mapping[str, Any]:
    def refuse(word: str) -> float:
        raise DamagedError(f"{word} is no number of JSON")

    if len(line) > LONGEST_LINE:
        raise DamagedError(f"the line has more than {LONGEST_LINE} characters")
    try:
        data = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise DamagedError("the line is not JSON") from error
    if not isinstance(data, dict):
        raise DamagedError("the line is no object of JSON")
    return data


def get(data: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    value = data.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DamagedError(f'"{key}" is missing or of another type')
    return value


def text(data: Mapping[str, Any], key: str) -> str:
    return whole_text(str(get(data, key, str)), key)


def whole_text(value: str, key: str) -> str:
    """`value`, where it is text that can be written down: JSON can name half a character alone."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DamagedError(f"{json.dumps(key)} is no text of Unicode") from error
    return value


def whole(data: Mapping[str, Any], key: str) -> int:
    value = int(get(data, key, int))
    if value < 0:
        raise DamagedError(f'"{key}" is negative')
    if value > LARGEST_WHOLE:
        raise DamagedError(f'"{key}" is larger than any count')
    return value


def _real(data: Mapping[str, Any], key: str) -> float:
    """The number as a float, infinite where none can hold it."""
    try:
        return float(get(data, key, (int, float)))
    except OverflowError:
        return math.inf


def number(data: Mapping[str, Any], key: str) -> float:
    value = _real(data, key)
    if not math.isfinite(value) or value < 0:
        raise DamagedError(f'"{key}" is no positive number')
    return value


def part(data: Mapping[str, Any], key: str) -> float:
    """A part of a time: at most 1, and below 0 for what is slower."""
    value = _real(data, key)
    if not math.isfinite(value) or value > 1:
        raise DamagedError(f'"{key}" is no part of a time')
    return value


def flag(data: Mapping[str, Any], key: str) -> bool:
    value = data.get(key)
    if not isinstance(value, bool):
        raise DamagedError(f'"{key}" is missing or of another type')
    return value


def status_of(data: Mapping[str, Any]) -> Status:
    try:
        return Status(text(data, "status"))
    except ValueError as error:
        raise DamagedError(f"unknown status {json.dumps(shorten(data['status']))}") from error


def device_of(data: Mapping[str, Any], devices: int) -> int:
    device = whole(data, "device")
    if device >= devices:
        raise DamagedError(f"device {device} is not among the header's {devices}")
    return device


def statistics(data: Mapping[str, Any]) -> Statistics:
    return Statistics(
        number(data, "median"), number(data, "least"), number(data, "greatest"), number(data, "spread"),
        whole(data, "repeats"), whole(data, "launches"),
    )  # fmt: skip

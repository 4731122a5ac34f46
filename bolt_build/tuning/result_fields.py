"""Fields of the lines of a results file, each with the type that it must have. All of these raise DamagedError."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from bolt_build.tuning.record import Statistics, Status


class DamagedError(Exception):
    """What is wrong with a line."""


def json_object(line: str) -> Mapping[str, Any]:
    def refuse(word: str) -> float:
        raise DamagedError(f"{word} is no number of JSON")

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
    return str(get(data, key, str))


def whole(data: Mapping[str, Any], key: str) -> int:
    value = int(get(data, key, int))
    if value < 0:
        raise DamagedError(f'"{key}" is negative')
    return value


def number(data: Mapping[str, Any], key: str) -> float:
    value = float(get(data, key, (int, float)))
    if not math.isfinite(value) or value < 0:
        raise DamagedError(f'"{key}" is no positive number')
    return value


def part(data: Mapping[str, Any], key: str) -> float:
    """A part of a time: at most 1, and below 0 for what is slower."""
    value = float(get(data, key, (int, float)))
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
        raise DamagedError(f"unknown status {json.dumps(data['status'])}") from error


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

"""What the driver says while it measures (`run --json`): an object of JSON a line."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """`gpu` is CUDA's number of the GPU that it is about, None where it is about the whole run; `done` says which of
    its problems the driver has just finished, counted from 1, None where it has finished none."""

    text: str
    gpu: int | None = None
    done: int | None = None


def progress_of(line: str) -> Progress:
    """What a line says. One that is no such object is text: what a driver dies of says itself in words of its own."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return Progress(line)
    if not isinstance(data, dict) or not isinstance(data.get("text"), str):
        return Progress(line)
    numbers = (data.get(name) for name in ("gpu", "done"))
    gpu, done = (each if isinstance(each, int) else None for each in numbers)
    return Progress(data["text"], gpu, done)

"""What steps of networks that no recipe names take, beside what is predicted of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from . import figures, kind_words, percent, short_gpu, table

_LEAST = 10
"""Steps of a kind that has a row of its own."""
_MOVING = frozenset({
    "concat", "convert", "expand", "gather", "gather_elements", "pad", "rearrange", "slice", "split", "transpose",
})  # fmt: skip
"""Kinds that compute nothing."""


@figures("other_steps")
def other_steps(data: Any) -> dict[str, str]:
    return _by_kind("other_steps", data)


@figures("other_steps_h100")
def other_steps_h100(data: Any) -> dict[str, str]:
    return _by_kind("other_steps_h100", data)


def _by_kind(name: str, data: Any) -> dict[str, str]:
    """A row a kind of steps and family, those first that take most of their networks' time."""
    kinds: dict[str, list[Any]] = defaultdict(list)
    parts: dict[str, float] = defaultdict(float)
    networks = data["networks"].values()
    for network in networks:
        whole = _taken(network["steps"])
        for step in network["steps"]:
            kinds[_kind(step)].append(step)
            parts[_kind(step)] += step["count"] * step["us"] / whole / len(networks)
    shown = sorted((kind for kind, steps in kinds.items() if _count(steps) >= _LEAST), key=lambda kind: -parts[kind])
    every = [step for network in networks for step in network["steps"]]
    rest = [step for kind, steps in kinds.items() if kind not in shown for step in steps]
    rows = [["all", *_words(every), ""]]
    rows += [[kind, *_words(kinds[kind]), percent(parts[kind], 1)] for kind in shown]
    rows.append([f"other kinds, each of fewer than {_LEAST} steps", *_words(rest), ""])
    gpus = " and ".join(sorted({short_gpu(network["gpu"]) for network in networks}))
    head = [f"measured over predicted, {gpus}", "steps", "mean", "10% to 90%", "of bound", "of the networks' time"]
    return {
        name: table(head, rows), f"{name}.steps": f"{_count(every):,}", f"{name}.networks": str(len(networks)),
    }  # fmt: skip


@figures("other_steps")
def spent(data: Any) -> dict[str, str]:
    """What some networks spend their time on: the kinds that take most of it, and all that compute nothing."""
    steps = {name: network["steps"] for name, network in data["networks"].items()}
    return {
        "other_steps.poolformer": _most(steps["poolformer_s12"]),
        "other_steps.inception": _most(steps["inception_v3"]),
        "other_steps.deberta": _most(steps["deberta_v2_small"]),
        "other_steps.xcit": _most(steps["xcit_nano_12_p16_224"]),
        "other_steps.xcit_moves": percent(_moving(steps["xcit_nano_12_p16_224"])),
    }


def _kind(step: Any) -> str:
    """The kind and, as in the table of predictions, the family."""
    return f"{step['kernel'].split()[0]}: {kind_words(step['kind'])}"


def _count(steps: Sequence[Any]) -> int:
    return sum(int(step["count"]) for step in steps)


def _taken(steps: Sequence[Any]) -> float:
    return sum(float(step["count"] * step["us"]) for step in steps)


def _words(steps: Sequence[Any]) -> list[str]:
    """How many there are, their geometric mean of measured over predicted, its spread, and what they reach of their
    bounds."""
    ratios = sorted(_ratios(steps))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    low, high = (ratios[min(len(ratios) - 1, int(part * len(ratios)))] for part in (0.1, 0.9))
    bound = sum(step["count"] * step["bound_us"] for step in steps) / _taken(steps)
    return [str(len(ratios)), f"{mean:.2f}", f"{low:.2f} to {high:.2f}", percent(bound)]


def _ratios(steps: Sequence[Any]) -> Iterator[float]:
    for step in steps:
        yield from [step["us"] / step["predicted_us"]] * step["count"]


def _most(steps: Sequence[Any], kinds: int = 4) -> str:
    """The kinds that take most of a network's time, each with its part."""
    taken: dict[str, float] = defaultdict(float)
    for step in steps:
        taken[_kind(step)] += step["count"] * step["us"]
    first = sorted(taken, key=lambda kind: -taken[kind])[:kinds]
    return ", ".join(f"{kind} {percent(taken[kind] / _taken(steps))}" for kind in first)


def _moving(steps: Sequence[Any]) -> float:
    """The part of the time in steps that compute nothing."""
    return _taken([step for step in steps if step["kind"] in _MOVING]) / _taken(steps)

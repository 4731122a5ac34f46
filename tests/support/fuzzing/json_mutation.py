"""Mutations of JSON by its structure."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

TELLING: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**400), 0.5, -0.0, 1e308, -1e-308, "", "\0",
    "x" * 3000, "\ud800", "../../victim", "/etc/passwd", "nan", "1e999", "\u202e", "\x1b[2J", [], {}, [[]], {"": None},
    {"is": "Bundle"},
)  # fmt: skip
"""Values that readers of JSON are known to stumble over."""


def spoiled(random: Random, data: Any) -> Any:
    """A copy of `data` with one to three of its values replaced, removed, doubled, or changed for another."""
    found = copy.deepcopy(data)
    for _ in range(random.randint(1, 3)):
        holders = _holders(found)
        if not holders:
            return random.choice(TELLING)
        _change(random, random.choice(holders), holders)
    return found


def exchanged(random: Random, data: Any) -> Any:
    """A copy of `data` in which one to four values are others of the same type: its form stays right."""
    found = copy.deepcopy(data)
    for _ in range(random.randint(1, 4)):
        leaves = [
            (holder, place)
            for holder in _holders(found)
            for place in (holder if isinstance(holder, dict) else range(len(holder)))
            if not isinstance(holder[place], dict | list)
        ]
        if leaves:
            holder, place = random.choice(leaves)
            same = [other[key] for other, key in leaves if type(other[key]) is type(holder[place])]
            holder[place] = random.choice(same)
    return found


def _holders(data: Any) -> list[Any]:
    """Every list and mapping with something in it."""
    waiting, found = [data], []
    while waiting:
        one = waiting.pop()
        inside = list(one.values()) if isinstance(one, dict) else one if isinstance(one, list) else []
        if inside:
            found.append(one)
            waiting += inside
    return found


def _change(random: Random, holder: Any, holders: list[Any]) -> None:
    place = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    kind = random.randrange(6)
    if kind == 0:
        del holder[place]
    elif kind == 1:
        other = random.choice(holders)
        key = random.choice(list(other) if isinstance(other, dict) else range(len(other)))
        holder[place] = copy.deepcopy(other[key])
    elif kind == 2 and isinstance(holder, list):
        holder.insert(random.randint(0, len(holder)), copy.deepcopy(holder[place]))
    elif kind == 2:
        holder[random.choice(("unknown", "", "is", "x" * 300))] = holder.pop(place)
    else:
        holder[place] = copy.deepcopy(random.choice(TELLING))

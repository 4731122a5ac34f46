"""How candidates state tiles and settings: by name, each value with its type, in one order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")
Named = tuple[tuple[str, int | str], ...]
"""Parameters or settings of a candidate, in the order in which they are written."""


class Reader:
    """Values of a candidate's parameters or settings; each is asked for once, then `end` makes sure of all.

    Every method raises ValueError for what no kernel of the kind has: another name, another type, another word.
    """

    def __init__(self, named: Named) -> None:
        self._left = dict(named)

    def has(self, name: str) -> bool:
        return name in self._left

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number above 0."""
        value = self._left.pop(name, default)
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} is a whole number above 0, not {value!r}")
        return value

    def word(self, name: str, values: Mapping[str, V], default: str | None = None) -> V:
        """What one of some words stands for."""
        value = self._left.pop(name, default)
        if not isinstance(value, str) or value not in values:
            raise ValueError(f"{name} is one of {', '.join(values)}, not {value!r}")
        return values[value]

    def numbers(self, name: str) -> tuple[int, ...]:
        """Several numbers from 0 on, written with an x between them."""
        value = self._left.pop(name, None)
        parts = str(value).split("x") if isinstance(value, int | str) else []
        if not parts or not all(part.isdecimal() for part in parts):
            raise ValueError(f"{name} is several numbers with an x between them, not {value!r}")
        return tuple(map(int, parts))

    def end(self) -> None:
        if self._left:
            raise ValueError(f"has no {', '.join(self._left)}")

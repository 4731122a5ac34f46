"""One input made at random, and what a kind of inputs offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol


class Violation(Exception):
    """What an input must not be able to bring about; the text says what happened."""


@dataclass(frozen=True)
class Case:
    """An input: the files of a folder, and in a few words how they were made.

    `files` are paths relative to the folder with their bytes, `arguments` what else the kind's `check` wants to know.
    """

    about: str
    files: tuple[tuple[str, bytes], ...] = ()
    arguments: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Writes `files` below `folder`."""
        for name, data in self.files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@dataclass(frozen=True)
class Limits:
    """What a case may take: `cpu` seconds with its child processes', `wall` seconds, and `memory` in bytes."""

    cpu: float = 10.0
    wall: float = 60.0
    memory: int = 2 * 10**9


class Kind(Protocol):
    """A module of `fuzz`; `prepare` may be absent."""

    LONG: int
    SHORT: int
    case: Callable[[Random], Case]
    check: Callable[[Case, Path], str]


def random_of(name: str, seed: int, number: int) -> Random:
    """What case `number` of a kind is made of: the same everywhere, and independent of all others."""
    return Random(f"{name}/{seed}/{number}")


def cases(name: str, kind: Kind, seed: int, count: int, first: int = 0) -> Iterator[Case]:
    """Cases `first` to `first + count - 1` of a kind."""
    return (kind.case(random_of(name, seed, number)) for number in range(first, first + count))

"""Contestants in turns, each in a process of its own: who goes next, and what each measures.

    with seated(entries) as opponents:
        rounds = take_turns(opponents, 11)

For contests that `bench` does not hold: of several engines, or of one whose process finds another environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from bolt_build.bench.contestant import PeerFailed, Setup
from bolt_build.bench.opponent import Opponent, Start
from bolt_build.bench.process import NotReady
from bolt_build.bench.rounds import Round
from bolt_build.scratch import scratch_folder

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """A contestant, and how its process is started."""

    setup: Setup
    start: Start = field(default_factory=Start)


def order(contestants: Sequence[T], number: int) -> tuple[T, ...]:
    """That of a round: each begins with another one, so that none always follows the same."""
    first = number % len(contestants)
    return (*contestants[first:], *contestants[:first])


@contextmanager
def seated(entries: Mapping[str, Entry]) -> Iterator[Mapping[str, Opponent]]:
    """All contestants by name, each ready and asleep. Raises PeerFailed where one does not get ready."""
    with scratch_folder() as files, ExitStack() as processes:
        opponents = {}
        for name, entry in entries.items():
            own = files / name
            own.mkdir()
            opponents[name] = processes.enter_context(Opponent(entry.setup, own, entry.start))
            ready = opponents[name].ready()
            if isinstance(ready, NotReady):
                raise PeerFailed("\n".join((f"{name}: {ready.reason}", *opponents[name].log())))
        yield opponents


def take_turns(opponents: Mapping[str, Opponent], rounds: int) -> Mapping[str, tuple[Round, ...]]:
    """What each measures in so many rounds. Raises PeerFailed."""
    found: dict[str, list[Round]] = {name: [] for name in opponents}
    for number in range(rounds):
        for name in order(tuple(opponents), number):
            found[name].append(opponents[name].round())
    return {name: tuple(each) for name, each in found.items()}

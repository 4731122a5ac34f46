"""What measurements say about kernels, as the planner takes it: a winner a problem, and the covers found with them."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import Candidate


@dataclass(frozen=True)
class Winner:
    """The fastest kernel of a problem (its digest) and the seconds that it was measured to take."""

    problem: str
    candidate: Candidate
    seconds: float


@dataclass(frozen=True)
class ChosenAlternative:
    """One alternative of a cover: the nodes of its region, its family, and the digests of its steps' problems."""

    region: tuple[str, ...]
    family: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class ChosenCover:
    """The cover that `resolve` found for one graph: `graph` is the digest of its structure."""

    graph: str
    batch: int
    alternatives: tuple[ChosenAlternative, ...]


@dataclass(frozen=True)
class Selection:
    """Winners by problem digest, in its order, and covers. `source` is where they come from: "predictions" (there are
    none then), "records", or the name of a lock file."""

    source: str
    winners: tuple[Winner, ...] = ()
    covers: tuple[ChosenCover, ...] = ()


PREDICTED = Selection("predictions")

"""What measurements say about kernels, as the planner takes it: a winner a problem, the covers found with them, and
what whole engines run faster with."""

from __future__ import annotations

from dataclasses import dataclass, field

from bolt_build.digest import UNSAID
from bolt_build.families.base import Candidate
from bolt_build.sizes import Dims


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
    dims: Dims = field(default=(), metadata=UNSAID)


@dataclass(frozen=True)
class EngineChoice:
    """What the whole engine of one graph is faster with: kernels that take the places of their problems' winners, each
    with the seconds that it takes alone. `before` and `after` are seconds of the engine with the winners and with
    these. `other_plan`: the cover is one of which the whole engine was faster than of the winners' own."""

    graph: str
    batch: int
    swaps: tuple[Winner, ...]
    before: float
    after: float
    dims: Dims = field(default=(), metadata=UNSAID)
    other_plan: bool = field(default=False, metadata=UNSAID)


@dataclass(frozen=True)
class Selection:
    """Winners by problem digest, in its order, covers, and choices of whole engines, which hold with these winners and
    covers alone. `source` is where they come from: "predictions" (there are none then), "records", or the name of a
    lock file. `stated`: candidates state their settings; those of locks before format 3 left some to a prediction."""

    source: str
    winners: tuple[Winner, ...] = ()
    covers: tuple[ChosenCover, ...] = ()
    engines: tuple[EngineChoice, ...] = ()
    stated: bool = True


PREDICTED = Selection("predictions")

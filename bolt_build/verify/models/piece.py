"""What a model is cut into (`verify.models.segments`): a graph, and what it gives of each tensor that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from onnx import ModelProto

from bolt_build.verify.rounding.rounding import Roundings, Variance
from bolt_build.verify.taps import Tap


class Care(Enum):
    """How a variance is found: of the first rows, as a bound; of every row, with what partial sums come to
    (`verify.rounding.partial_sums`); or of every row, and no more than trying shows (`verify.rounding.tried`)."""

    FIRST_ROWS = "first rows"
    EVERY_ROW = "every row"
    TRIED = "tried"


@dataclass(frozen=True)
class Wanted:
    """A tap in a piece: the names of its tensor, of its variance there (None where there is none but what is relative
    to the tensor) and of the numbers of products in its sums; and whether it is computed at all, not only moved."""

    tap: Tap
    tensor: str
    variance: Variance
    counts: tuple[str, ...]
    computed: bool
    roundings: Roundings

    @property
    def names(self) -> tuple[str, ...]:
        """All that the piece must give for it."""
        return (self.tensor, *([self.variance] if self.variance is not None else []), *self.counts)


@dataclass(frozen=True)
class Piece:
    """A graph that gives what is `wanted`. `fed` are the engine's values that it reads, each with its input's name."""

    model: ModelProto
    fed: tuple[tuple[str, str], ...]
    wanted: tuple[Wanted, ...]

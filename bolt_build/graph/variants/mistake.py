"""What of a variant's description does not fit the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """`key` is the part of the variant that is wrong ("deepen.behind"), the rest as in a `Diagnostic`."""

    key: str
    code: str
    message: str
    hint: str | None = None


class VariantError(Exception):
    """All that is wrong with one variant."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(mistake.message for mistake in self.mistakes))

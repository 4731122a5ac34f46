"""Tiles that are whole numbers: candidates state each by its name, behind the kind of their kernels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Self

from bolt_build.families.common.text_form import Named, Reader


@dataclass(frozen=True)
class Numbered:
    """A tile whose fields are whole numbers above 0, with all of which a kernel is compiled. For example
    `DownTile(units=2, strips=1, rows=28)` is stated as `kind=down units=2 strips=1 rows=28`."""

    kind: ClassVar[str]

    @property
    def parameters(self) -> Named:
        return (("kind", self.kind), *((each.name, getattr(self, each.name)) for each in fields(self)))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """The tile that a candidate states. Raises ValueError where it is of another kind, or a number is missing."""
        reader.word("kind", {cls.kind: cls.kind})
        return cls(*(reader.number(each.name) for each in fields(cls)))

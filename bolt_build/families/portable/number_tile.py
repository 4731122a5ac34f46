"""Tiles that are whole numbers: candidates state each by its name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

from bolt_build.families.common.text_form import Named, Reader

T = TypeVar("T", bound="NumberTile")


@dataclass(frozen=True)
class NumberTile:
    """A tile whose fields are whole numbers above 0. A kernel is compiled with them, and those in `SETTINGS` are
    its arguments. For example `ScanColumnsTile(lanes=8, across=4)` is stated as `lanes=8 across=4`."""

    SETTINGS: ClassVar[tuple[str, ...]] = ()

    @property
    def parameters(self) -> Named:
        names = (field.name for field in fields(self))
        return tuple((name, getattr(self, name)) for name in names if name not in self.SETTINGS)

    @property
    def settings(self) -> Named:
        return tuple((name, getattr(self, name)) for name in self.SETTINGS)

    @classmethod
    def read(cls: type[T], reader: Reader) -> T:
        """The tile that a candidate states. Raises ValueError where a number is missing, or is none above 0."""
        return cls(**{field.name: reader.number(field.name) for field in fields(cls)})

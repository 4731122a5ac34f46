"""A small node of an operator, from which `bolt-build operators` finds out what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.dtypes import DType


@dataclass(frozen=True)
class Data:
    """An input that is computed at run time, of whatever element type is asked about, or of `dtype`."""

    shape: tuple[int, ...]
    dtype: DType | None = None


@dataclass(frozen=True)
class Weights:
    """A constant input of the data's element type, all ones."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Bytes:
    """A constant input of uint8, all ones."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Integers:
    """A constant input of int64: a list, or a scalar where `scalar` says so."""

    values: tuple[int, ...]
    scalar: bool = False


@dataclass(frozen=True)
class Listed:
    """An attribute that is a tensor of one axis."""

    values: tuple[float, ...]
    dtype: DType


@dataclass(frozen=True)
class Example:
    """Inputs and attributes of one node in the newest version that the importer understands.

    The first `listed` inputs are the tensors of a sequence, which is the node's first input. `joined`: its output is a
    sequence, whose tensors are then joined along the first axis.
    """

    inputs: tuple[Data | Weights | Bytes | Integers, ...]
    attributes: tuple[tuple[str, int | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Listed], ...] = ()
    outputs: int = 1
    listed: int = 0
    joined: bool = False


IMAGE = (1, 4, 6, 6)
"""The shape of most examples' data: a batch, channels, height and width."""

OF_AN_IMAGE = Example((Data(IMAGE),))
OF_TWO_IMAGES = Example((Data(IMAGE), Data(IMAGE)))

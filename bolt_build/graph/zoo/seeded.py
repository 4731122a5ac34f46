"""Models whose weights follow from a seed and their names alone, without a pass over data.

Normalisations keep an encoder's activations where its weights put them, so nothing has to be calibrated. Weights are
drawn while the file is written, a few megabytes at a time: a file of a gigabyte takes seconds and hardly any memory.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from bolt_build.graph.zoo.builder import Builder, zeros_of

_CHUNK = 1 << 20
"""Numbers that are drawn at once."""
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Field numbers of onnx.proto: of ModelProto, GraphProto and TensorProto."""


@dataclass(frozen=True)
class Spread:
    """How a weight is drawn: uniformly around `centre`, with standard deviation `deviation`.

    `gains`: the last axis is cut in as many equal parts, each multiplied with its own. `like` names a weight of the
    same shape that this one correlates with, by `share`. `mirrored`: every other row is the one before it, negated, so
    that a product with it loses what its inputs have in common.
    """

    deviation: float
    centre: float = 0.0
    gains: tuple[float, ...] = (1.0,)
    like: str = ""
    share: float = 0.0
    mirrored: bool = False

    def chunks(self, shape: tuple[int, ...], name: str, seed: int) -> Iterator[npt.NDArray[np.float32]]:
        """The numbers of weight `name` of `shape`, some rows after the others. NumPy's legacy generator gives the same
        on every machine."""
        columns = shape[-1]
        reach = np.repeat(np.array(self.gains), columns // len(self.gains)) * self.deviation * math.sqrt(3.0)
        own, other = _random(name, seed), _random(self.like, seed) if self.like else None
        rows, most = math.prod(shape[:-1]), max(2, _CHUNK // columns // 2 * 2)
        for first in range(0, rows, most):
            part = (min(most, rows - first), columns)
            drawn = own.random_sample(part) * 2.0 - 1.0
            if self.mirrored:
                drawn[1::2] = -drawn[: len(drawn) // 2 * 2 : 2]
            if other is not None:
                drawn = drawn * math.sqrt(1.0 - self.share**2) + (other.random_sample(part) * 2.0 - 1.0) * self.share
            yield (self.centre + drawn * reach).astype(np.float32)


@dataclass(frozen=True)
class Seeded:
    """A model without its weights: f32 initializers that have no data yet, and how each is drawn."""

    model: onnx.ModelProto
    spreads: dict[str, Spread]

    def zeros(self) -> onnx.ModelProto:
        """The model with weights that are zero, as other models of the zoo are before they are calibrated."""
        return self._filled(zeros_of)

    def drawn(self, seed: int) -> onnx.ModelProto:
        """The model with its weights, all in memory."""
        return self._filled(lambda item: b"".join(chunk.tobytes() for chunk in self._chunks(item, seed)))

    def write(self, file: IO[bytes], seed: int) -> None:
        """Writes the ONNX file: the bytes of `drawn`'s weights, without ever holding one as a whole. Raises OSError."""
        graph = onnx.GraphProto()
        graph.CopyFrom(self.model.graph)
        del graph.initializer[:]
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.ClearField("graph")
        heads = [(item, *_tensor_head(item)) for item in self.model.graph.initializer]
        body = graph.SerializeToString(deterministic=True)
        size = len(body) + sum(len(_field(_INITIALIZER, all_of)) + all_of for _, _, all_of in heads)
        file.write(model.SerializeToString(deterministic=True) + _field(_GRAPH, size) + body)
        for item, head, all_of in heads:
            file.write(_field(_INITIALIZER, all_of) + head)
            for chunk in self._chunks(item, seed):
                file.write(chunk.tobytes())

    def _chunks(self, item: TensorProto, seed: int) -> Iterator[npt.NDArray[np.float32]]:
        return self.spreads[item.name].chunks(tuple(item.dims), item.name, seed)

    def _filled(self, data: Callable[[TensorProto], bytes]) -> onnx.ModelProto:
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for item in model.graph.initializer:
            item.raw_data = data(item)
        return model


class SeededBuilder(Builder):
    """A `Builder` whose weights are drawn by what each is: see `Spread`. All of them are f32."""

    def __init__(self) -> None:
        super().__init__()
        self._spreads: dict[str, Spread] = {}

    def weight(self, scope: str, part: str, shape: tuple[int, ...], spread: Spread) -> str:
        """A weight of module `scope`."""
        name = self._empty(scope, part, *shape)
        self._spreads[name] = spread
        return name

    def seeded(self, name: str, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> Seeded:
        """All of it, as a model called `name`."""
        return Seeded(self.finish(name, inputs, outputs), self._spreads)


def _random(name: str, seed: int) -> np.random.RandomState:
    return np.random.RandomState([seed, zlib.crc32(name.encode())])


def _tensor_head(item: TensorProto) -> tuple[bytes, int]:
    """A TensorProto up to where its data begins, and the bytes of all of it."""
    nbytes = math.prod(item.dims) * 4
    head = item.SerializeToString(deterministic=True) + _field(_RAW_DATA, nbytes)
    return head, len(head) + nbytes


def _field(number: int, size: int) -> bytes:
    """The key and the length of a protobuf field of `size` bytes."""
    return _varint(number << 3 | 2) + _varint(size)


def _varint(value: int) -> bytes:
    """Protobuf's variable-length whole number: seven bits a byte, the lowest first."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])

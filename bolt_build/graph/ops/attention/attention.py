"""Scaled dot-product attention of several heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from bolt_build.digest import UNSAID
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_float, expect_same_dtype
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tail, Tails, stride

_Each = TypeVar("_Each")
"""What belongs to an input: its name, type or array."""


@dataclass(frozen=True)
class AttentionShape:
    """Extents of one attention: images `batch`, `queries` and `keys` of one image, and a head's elements in queries and
    keys (`depth`) and in values (`columns`)."""

    batch: int
    queries: int
    keys: int
    depth: int
    columns: int


def images_of(mask: tuple[int, ...], batch: int) -> int:
    """How many images of a batch have a mask of their own, where they divide it: 1 where all share one."""
    images = mask[0] if len(mask) == 4 else 1
    return images if images > 0 and batch % images == 0 else 1


@dataclass(frozen=True)
class Attention(Op):
    """y = softmax(scale Q K^T + mask) V for each head, the softmax over keys.

    Inputs: q [N, S, heads D], k [N, T, kv_heads D] and v [N, T, kv_heads Dv]. Rows hold the heads side by side, as the
    products leave them. If `packed` one tensor [N, S, heads D + 2 kv_heads D] has all three side by side in this order;
    then T is S and Dv is D. Head h reads key and value head h // (heads // kv_heads). Behind them optionally a mask
    that broadcasts to [N, heads, S, T] and is added to the scaled scores; minus infinity in it hides a key. A mask of
    fewer images, which divide N, begins anew behind them: image n reads that of n % images. Two masks are added up: one
    of heads and one of images are far smaller than their sum. A mask that is `relative` is [heads, S + T - 1] or
    [1, S + T - 1]: key j adds element j - i + S - 1 to the score of query i. If `sunk`, sinks are the
    last input, [heads] or [1]: one more score of each head that takes its share of the softmax and reads no value, as
    in GPT-OSS. A sink of 0 is a softmax whose sum begins with 1.
    Output: [N, S, heads Dv].

    If `causal`, query i reads keys 0 to i alone, counted from the first of both where S and T differ. A query that
    reads no key, because the mask hides all of them by infinity, gives the mean of all values: models hide keys by a
    finite number that no score changes, so that all have one score, and half precision or a pass makes it infinite. If
    the model itself hides by infinity, such a query gives NaN (`endless`), or 0 where the softmax is `safe` or `sunk`.
    A `window` above 0 leaves query i the keys i - window + 1 to i + window - 1, up to i if `causal`, for S <= T.
    A `cap` above 0 bounds scores before the mask is added: c tanh(scale Q K^T / c), as in Gemma 2.
    If `counted`, T is the extent of the engine's dimension of this number (from 1 on), and keys that a run pads it with
    are not read.
    """

    kind = "attention"
    factors = 1
    """Queries may be learned, and so constant: they are stored as those that are computed."""
    heads: int
    kv_heads: int
    scale: float
    causal: bool = False
    packed: bool = False
    safe: bool = False
    counted: int = field(default=0, metadata=UNSAID)
    endless: bool = field(default=False, metadata=UNSAID)
    window: int = field(default=0, metadata=UNSAID)
    cap: float = field(default=0.0, metadata=UNSAID)
    sunk: bool = field(default=False, metadata=UNSAID)
    relative: bool = field(default=False, metadata=UNSAID)

    @property
    def tied(self) -> bool:
        """Whether a query that reads no key gives the mean of all values."""
        return not self.safe and not self.endless and not self.sunk

    @property
    def reads_sizes(self) -> bool:
        return self.counted > 0

    @property
    def sources(self) -> int:
        """How many inputs stand before the mask."""
        return 1 if self.packed else 3

    def masks(self, inputs: Sequence[_Each]) -> tuple[_Each, ...]:
        """Of what belongs to each input, that of the masks, of which there are none, one or two."""
        return tuple(inputs[self.sources : len(inputs) - self.sunk])

    def sinks(self, inputs: Sequence[_Each]) -> tuple[_Each, ...]:
        """The same of the sinks."""
        return tuple(inputs[-1:]) if self.sunk else ()

    def extents(self, inputs: Sequence[TensorType]) -> AttentionShape:
        """The extents of inputs that `infer` takes. Raises ShapeError where rows are no whole heads."""
        q = inputs[0]
        if self.packed:
            batch, queries, row = q.shape
            depth = self._each(row, self.heads + 2 * self.kv_heads, "packed rows")
            return AttentionShape(batch, queries, queries, depth, depth)
        k, v = inputs[1:3]
        depth = self._each(q.shape[2], self.heads, "rows of queries")
        if self._each(k.shape[2], self.kv_heads, "rows of keys") != depth:
            raise ShapeError(f"heads of queries {list(q.shape)} and keys {list(k.shape)} have different lengths")
        columns = self._each(v.shape[2], self.kv_heads, "rows of values")
        return AttentionShape(q.shape[0], q.shape[1], k.shape[1], depth, columns)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, self.sources + self.sunk, self.sources + self.sunk + 2)
        expect_same_dtype(inputs[: self.sources])
        for t in inputs:
            expect_float(t)
        if self.heads < 1 or self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ShapeError(f"{self.heads} heads cannot share {self.kv_heads} heads of keys and values equally")
        for t in inputs[: self.sources]:
            if t.rank != 3:
                raise ShapeError(f"input {list(t.shape)} must have batch, rows and elements of a row")
        shape = self.extents(inputs)
        if self.window < 0 or not self.cap >= 0.0:
            raise ShapeError(f"a window of {self.window} keys or a cap of {self.cap:g} bounds nothing")
        if self.window and shape.queries > shape.keys:
            raise ShapeError(f"{shape.queries} queries have windows of keys, of which there are {shape.keys}")
        if not self.packed:
            q, k, v = inputs[:3]
            if k.shape[0] != q.shape[0] or v.shape[:2] != k.shape[:2]:
                raise ShapeError(
                    f"queries {list(q.shape)}, keys {list(k.shape)} and values {list(v.shape)} do not belong together"
                )
        for sinks in self.sinks(inputs):
            if sinks.shape not in ((self.heads,), (1,)):
                raise ShapeError(f"sinks {list(sinks.shape)} are neither one nor one of each of {self.heads} heads")
        if self.relative:
            masks, distances = self.masks(inputs), shape.queries + shape.keys - 1
            if [mask.shape for mask in masks] not in ([(self.heads, distances)], [(1, distances)]):
                raise ShapeError(
                    f"a mask by distance has {distances} numbers for each of {self.heads} heads or for all"
                )
            return (TensorType(inputs[0].dtype, (shape.batch, shape.queries, self.heads * shape.columns)),)
        for mask in self.masks(inputs):
            scores = (shape.batch, self.heads, shape.queries, shape.keys)
            repeated = (shape.batch, *mask.shape[1:]) if images_of(mask.shape, shape.batch) > 1 else mask.shape
            if broadcast(scores, repeated) != scores:
                raise ShapeError(f"mask {list(mask.shape)} does not broadcast to scores {list(scores)}")
        return (TensorType(inputs[0].dtype, (shape.batch, shape.queries, self.heads * shape.columns)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        q, k, v = (self._by_head(x, heads) for x, heads in self._sources(inputs))
        with np.errstate(all="ignore"):
            scores = q @ k.swapaxes(-1, -2) * self.scale
            if self.cap:
                scores = self.cap * np.tanh(scores / self.cap)
            for given in self.masks(inputs):
                mask = widened(given)
                if self.relative:
                    queries, keys = scores.shape[-2:]
                    mask = mask[:, np.arange(keys) - np.arange(queries)[:, None] + queries - 1]
                images = images_of(mask.shape, len(scores))
                scores = scores + (np.tile(mask, (len(scores) // images, 1, 1, 1)) if images > 1 else mask)
            if self.causal or self.window:
                scores = np.where(self.seen(*scores.shape[-2:]), scores, -np.inf)
            for sinks in self.sinks(inputs):
                column = np.broadcast_to(widened(sinks)[:, None, None], (*scores.shape[:-1], 1))
                scores = np.concatenate((scores, column), axis=-1)
            top = scores.max(axis=-1, keepdims=True)
            powers = np.exp(scores - top)
            shares = powers / powers.sum(axis=-1, keepdims=True)
            if self.sunk:
                shares = shares[..., :-1]
            if self.safe:
                shares = np.where(top == -np.inf, 0.0, shares)
            if self.tied:
                shares = np.where(top == -np.inf, np.float32(1.0 / scores.shape[-1]), shares)
            result = shares @ v
        batch, heads, queries, columns = result.shape
        rows = result.swapaxes(1, 2).reshape(batch, queries, heads * columns)
        return (narrowed(rows, inputs[0].dtype),)

    def seen(self, queries: int, keys: int) -> Array:
        """Which keys each query reads, whatever a mask hides: bool [queries, keys]."""
        seen = np.tri(queries, keys, dtype=np.bool_) if self.causal else np.ones((queries, keys), np.bool_)
        if self.window:
            seen &= np.tri(queries, keys, self.window - 1, np.bool_)
            seen &= ~np.tri(queries, keys, -self.window, np.bool_)
        return seen

    def pairs(self, queries: int, keys: int) -> int:
        """How many keys all queries of a head read; of a triangle half of all are counted."""
        if not self.window:
            return queries * keys // (2 if self.causal else 1)
        query = np.arange(queries)
        end = query + 1 if self.causal else query + self.window
        return int((np.minimum(keys, end) - np.maximum(0, query - self.window + 1)).sum())

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Two products, and five operations of the softmax for each score that is read."""
        shape = self.extents(inputs)
        each = 2 * (shape.depth + shape.columns) + 5
        if self.window:
            return shape.batch * self.heads * self.pairs(shape.queries, shape.keys) * each
        return shape.batch * self.heads * shape.queries * shape.keys * each // (2 if self.causal else 1)

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        shape = self.extents(inputs)
        scores = shape.batch * self.heads * shape.queries * shape.keys
        return super().workspace(inputs, outputs) + 3 * scores

    def _each(self, row: int, heads: int, what: str) -> int:
        if row % heads:
            raise ShapeError(f"{what} of {row} elements cannot be cut in {heads} heads")
        return row // heads

    def _sources(self, inputs: Sequence[Array]) -> tuple[tuple[Array, int], ...]:
        """Queries, keys and values as rows, each with how many heads it has."""
        if not self.packed:
            return tuple(zip(inputs[:3], (self.heads, self.kv_heads, self.kv_heads), strict=True))
        depth = inputs[0].shape[2] // (self.heads + 2 * self.kv_heads)
        ends = (self.heads * depth, (self.heads + self.kv_heads) * depth)
        q, k, v = np.split(inputs[0], ends, axis=2)
        return (q, self.heads), (k, self.kv_heads), (v, self.kv_heads)

    def _by_head(self, rows: Array, heads: int) -> Array:
        """[N, S, heads D] as [N, self.heads, S, D] in float64."""
        batch, count, row = rows.shape
        apart = widened(rows).reshape(batch, count, heads, row // heads).swapaxes(1, 2)
        return np.repeat(apart, self.heads // heads, axis=1)

    def tails(self, node: Node, at: Padded) -> Tails:
        """Keys behind are hidden by a mask, or by causality where queries end with them, or are counted."""
        shape, found = at.shape(node.outputs[0]), dict[int, Tail]()
        rows: list[set[int]] = []
        for name in node.inputs[: self.sources]:
            rows.append(set())
            for step in at.tails(name):
                axis = at.axis(name, step)
                if axis == 2:
                    raise PaddingReaches("has heads along it")
                if axis == 1 and at.tails(name)[step].lost and (self.packed or name != node.inputs[0]):
                    raise PaddingReaches("is attention over it whose padded keys are no numbers")
                if axis == 1:
                    rows[-1].add(step // stride(at.shape(name), 1))
                if axis == 0 or name == node.inputs[0]:
                    found[at.moved(name, step, shape, axis)] = ANYTHING
        hidden: set[int] = set()
        for name in self.masks(node.inputs):
            last = len(at.shape(name)) - 1
            hidden |= {step for step, tail in at.tails(name).items() if at.axis(name, step) == last and tail.hidden}
        queries, keys = rows[0], set().union(*rows[-2:])
        if keys - hidden and not (self.causal and keys <= queries):
            alone = len(node.inputs) == self.sources and keys == {1} and not self.window
            if not (alone and at.counts(node.name, at.shape(node.inputs[self.sources // 2])[1])):
                raise PaddingReaches("is attention over it without a mask that an input gives")
        return found

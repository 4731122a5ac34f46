"""Attention over channels: each channel of a head weighs the head's channels by how they go over all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.operands import expect_count, expect_float

DEEPEST = 64
"""Channels of a head at most, on tensor cores: a thread has registers for so many sums."""
STATISTICS = ("", "l1", "l2", "rms")
"""Those that are sums of terms, without a mean in front of them."""


@dataclass(frozen=True)
class ChannelAttention(Op):
    """y[b, n, h, i] = sum over j of p[b, h, i, j] v[b, n, h, j], where p is the softmax over j of
    scale * sum over n of q[b, n, h, i] k[b, n, h, j].

    The first input has queries, keys and values of all heads side by side, [B, N, 3 heads D]. Where `statistic` is not
    empty, queries and keys are normalised over n before that, as `Norm` does; where `scaled`, the second input, [2
    heads, N], is multiplied with what that leaves: a row of it for the queries of each head, then for the keys.
    No model has the operator; a pass makes it of transposes around an attention (XCiT, EdgeNeXt).
    """

    kind = "channel_attention"
    factors = 1
    heads: int
    scale: float = 1.0
    statistic: str = ""
    epsilon: float = 0.0
    scaled: bool = False

    def extents(self, rows: TensorType) -> tuple[int, int, int]:
        """Images, rows, and channels of a head. Raises ShapeError."""
        if rows.rank != 3 or self.heads < 1 or rows.shape[2] % (3 * self.heads):
            raise ShapeError(f"{list(rows.shape)} are no queries, keys and values of {self.heads} heads")
        return rows.shape[0], rows.shape[1], rows.shape[2] // (3 * self.heads)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1 + self.scaled)
        for each in inputs:
            expect_float(each)
        images, rows, depth = self.extents(inputs[0])
        if self.scaled and inputs[1].shape != (2 * self.heads, rows):
            raise ShapeError(f"scales {list(inputs[1].shape)} are not of {self.heads} heads and {rows} rows")
        if self.statistic:
            Norm(self.statistic, (1,), self.epsilon).infer(inputs[:1])
        return (TensorType(inputs[0].dtype, (images, rows, self.heads * depth)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        given, *scales = map(widened, inputs)
        images, rows = given.shape[:2]
        both, values = np.split(given.reshape(images, rows, 3, self.heads, -1), [2], axis=2)
        with np.errstate(all="ignore"):
            if self.statistic:
                (both,) = Norm(self.statistic, (1,), self.epsilon).evaluate([both])
            for each in scales:
                both = both * each.reshape(2, self.heads, rows, 1).transpose(2, 0, 1, 3)
            scores = np.einsum("bnhi,bnhj->bhij", both[:, :, 0], both[:, :, 1]) * np.float32(self.scale)
            powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
            shares = powers / powers.sum(axis=-1, keepdims=True)
            found = np.einsum("bhij,bnhj->bnhi", shares, values[:, :, 0])
        return (narrowed(found.reshape(images, rows, -1).astype(given.dtype), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 4 * outputs[0].elements * self.extents(inputs[0])[2]

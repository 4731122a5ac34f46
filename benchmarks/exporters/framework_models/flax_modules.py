"""Modules of Flax, as people write them: images with their channels last, transformers, a language model."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

numpy = jax.numpy


class Convolutions(nnx.Module):
    """A small classifier of images: normalisation of batches, pooling, a depthwise convolution with a residual."""

    def __init__(self, rngs: Any) -> None:
        self.first = nnx.Conv(3, 16, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs, use_running_average=True)
        self.second = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
        self.depthwise = nnx.Conv(32, 32, (3, 3), feature_group_count=32, rngs=rngs)
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.avg_pool(jax.nn.relu(self.norm(self.first(x))), window_shape=(2, 2), strides=(2, 2))
        x = jax.nn.gelu(self.second(x))
        return self.head((jax.nn.silu(self.depthwise(x)) + x).mean((1, 2)))


class Groups(nnx.Module):
    """Normalisation of groups, a residual block and a transposed convolution."""

    def __init__(self, rngs: Any) -> None:
        self.stem = nnx.Conv(3, 32, (7, 7), strides=2, use_bias=False, rngs=rngs)
        self.groups = nnx.GroupNorm(32, num_groups=8, rngs=rngs)
        self.first, self.second = nnx.Conv(32, 32, (3, 3), rngs=rngs), nnx.Conv(32, 32, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(32, use_running_average=True, rngs=rngs)
        self.up = nnx.ConvTranspose(32, 16, (2, 2), strides=(2, 2), rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = jax.nn.relu(self.groups(self.stem(x)))
        x = nnx.max_pool(x, window_shape=(3, 3), strides=(2, 2), padding="SAME")
        x = x + self.second(jax.nn.relu(self.norm(self.first(x))))
        return jax.nn.sigmoid(self.up(x))


class Block(nnx.Module):
    """A block of a transformer, normalised in front."""

    def __init__(self, width: int, rngs: Any) -> None:
        self.before, self.behind = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.narrow(jax.nn.gelu(self.wide(self.behind(x))))


class Vision(nnx.Module):
    """A vision transformer of two blocks."""

    def __init__(self, rngs: Any) -> None:
        self.patches = nnx.Conv(3, 128, (16, 16), strides=16, padding="VALID", rngs=rngs)
        self.places = nnx.Param(jax.random.normal(jax.random.key(0), (1, 16, 128)))
        self.first, self.second = Block(128, rngs), Block(128, rngs)
        self.norm, self.head = nnx.LayerNorm(128, rngs=rngs), nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.patches(x)
        x = x.reshape(x.shape[0], -1, 128) + self.places[...]
        return self.head(self.norm(self.second(self.first(x))).mean(1))


class Language(nnx.Module):
    """A language model of one block."""

    def __init__(self, rngs: Any) -> None:
        self.words, self.block = nnx.Embed(100, 64, rngs=rngs), Block(64, rngs)
        self.head = nnx.Linear(64, 100, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(self.block(self.words(x)))


class Rows(nnx.Module):
    """A perceptron whose rows are normalised by their root mean square."""

    def __init__(self, rngs: Any) -> None:
        self.first, self.second = nnx.Linear(30, 20, rngs=rngs), nnx.Linear(20, 10, rngs=rngs)
        self.drop, self.norm = nnx.Dropout(0.1, rngs=rngs, deterministic=True), nnx.RMSNorm(20, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return jax.nn.log_softmax(self.second(jax.nn.leaky_relu(self.norm(self.drop(self.first(x))))))


class Mixer(nnx.Module):
    """Products over patches and over channels by turns."""

    def __init__(self, rngs: Any) -> None:
        self.patches = nnx.Conv(3, 64, (8, 8), strides=8, rngs=rngs)
        self.tokens, self.channels = nnx.Linear(64, 64, rngs=rngs), nnx.Linear(64, 64, rngs=rngs)
        self.norm = nnx.LayerNorm(64, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.patches(x).reshape(x.shape[0], 64, 64)
        mixed = numpy.swapaxes(self.tokens(numpy.swapaxes(self.norm(x), 1, 2)), 1, 2) + x
        return numpy.einsum("bnc->bc", jax.nn.gelu(self.channels(mixed), approximate=False))


MODELS: dict[str, tuple[Any, tuple[int | str, ...]]] = {
    "CNN": (Convolutions, ("B", 32, 32, 3)), "ResGroupNorm": (Groups, ("B", 64, 64, 3)),
    "ViT": (Vision, ("B", 64, 64, 3)), "GPT": (Language, ("B", 12)), "MLP": (Rows, ("B", 30)),
    "Mixer": (Mixer, ("B", 64, 64, 3)),
}  # fmt: skip
"""Module and shape of what it is fed."""

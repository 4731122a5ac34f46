"""Attention as people write it themselves: layers of transformers whose heads, masks, positions, softmaxes and norms
are spelled out in other ways than packages have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[Tensor, ...]]
Core = Callable[..., Tensor]
WIDTH, HEADS, ROWS = 64, 4, 37
DEPTH = WIDTH // HEADS


class Layer(nn.Module):
    """One layer: attention of `heads` over `shared` heads of keys, then two products, normalised in front of each."""

    def __init__(self, core: Core, shared: int = HEADS, norm: Callable[[], nn.Module] | None = None) -> None:
        super().__init__()
        norm = norm or (lambda: nn.LayerNorm(WIDTH))
        self.core, self.shared, self.norms = core, shared, nn.ModuleList([norm(), norm()])
        self.rows = nn.Linear(WIDTH, WIDTH + 2 * shared * DEPTH)
        self.out, self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH)
        self.sinks = nn.Parameter(torch.randn(HEADS))
        self.features = nn.Parameter(torch.randn(24, DEPTH))

    def forward(self, x: Tensor, *masks: Tensor) -> Tensor:
        batch, rows, _ = x.shape
        every = self.rows(self.norms[0](x)).split([WIDTH, self.shared * DEPTH, self.shared * DEPTH], -1)
        q, k, v = (each.view(batch, rows, -1, DEPTH).transpose(1, 2) for each in every)
        x = x + self.out(self.core(self, q, k, v, *masks).transpose(1, 2).reshape(batch, rows, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


def plain(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v)


def grouped_einsum(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    groups = q.unflatten(1, (layer.shared, -1))
    scores = torch.einsum("bkgnd,bkmd->bkgnm", groups, k) * DEPTH**-0.5
    return torch.einsum("bkgnm,bkmd->bkgnd", scores.softmax(-1), v).flatten(1, 2)


def one_key_head(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bhnd,bmd->bhnm", q, k[:, 0]) * DEPTH**-0.5
    return torch.einsum("bhnm,bmd->bhnd", scores.softmax(-1), v[:, 0])


def _angles(rows: int) -> tuple[Tensor, Tensor]:
    turns = torch.outer(torch.arange(rows).float(), 1 / 1e4 ** (torch.arange(0, DEPTH, 2) / DEPTH))
    return turns.cos(), turns.sin()


def _turned_pairs(x: Tensor) -> Tensor:
    cos, sin = _angles(x.shape[-2])
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)


def _turned_back(x: Tensor) -> Tensor:
    cos, sin = _angles(x.shape[-2])
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos + second * sin, first * -sin + second * cos), -1)


def rotary_pairs(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(_turned_pairs(q), _turned_pairs(k), v, is_causal=True)


def rotary_back(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(_turned_back(q), _turned_back(k), v, is_causal=True)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) * DEPTH**-0.5


def less_the_largest(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    return (scores - scores.amax(-1, keepdim=True).detach()).softmax(-1) @ v


def divided_powers(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / (powers.sum(-1, keepdim=True) + 1e-9) @ v


def divided_results(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers @ v / powers.sum(-1, keepdim=True)


def masked_twice(layer: Layer, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    seen = mask[:, None, None, :] != 0
    scores = _scores(q, k).masked_fill(~seen, torch.finfo(torch.float32).min)
    return scores.softmax(-1).masked_fill(~seen, 0.0) @ v


def _blocks(rows: int, length: int) -> Tensor:
    """Which rows lie in one image, or one chunk, of so many."""
    image = torch.arange(rows) // length
    return image[:, None] == image


def packed_images(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = q.shape[2]
    hidden = torch.zeros(rows, rows).masked_fill(~_blocks(rows, 9), torch.finfo(torch.float32).min)
    return (_scores(q, k) + hidden).softmax(-1) @ v


def causal_chunks(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = q.shape[2]
    seen = _blocks(rows, 12) & torch.ones(rows, rows, dtype=torch.bool).tril()
    return functional.scaled_dot_product_attention(_turned_pairs(q), _turned_pairs(k), v, attn_mask=seen)


def sinks(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k).masked_fill(torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1), -torch.inf)
    sink = layer.sinks.view(1, -1, 1, 1).expand(len(q), -1, ROWS, 1)
    return torch.cat((scores, sink), -1).softmax(-1)[..., :-1] @ v


def positive_features(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def mapped(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        found = torch.einsum("bhnd,md->bhnm", x * DEPTH**-0.25, layer.features)
        return torch.exp(found - x.square().sum(-1, keepdim=True) / 2 - found.amax(axes, keepdim=True)) + 1e-4

    q, k = mapped(q, (-1,)), mapped(k, (-1, -2))
    return q @ (k.transpose(-1, -2) @ v) / (q @ k.sum(-2)[..., None])


class VarMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
        return (x - mean) * (variance + 1e-5).rsqrt() * self.weight + self.bias


class Length(VarMean):
    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(x, dim=-1) * WIDTH**0.5 * self.weight


class Power(VarMean):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.pow(x.square().mean(-1, keepdim=True) + 1e-6, -0.5) * self.weight


class HeadsInFront(nn.Module):
    """Heads that are parts of rows behind each other along the batch, as TensorFlow's models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.cat(layer(x).split(DEPTH, 2), 0) for layer in self.layers[:3])
        made = (q @ k.transpose(1, 2) / math.sqrt(DEPTH)).softmax(-1) @ v
        return x + self.layers[3](torch.cat(made.split(len(x), 0), 2))


class Joint(nn.Module):
    """Attention of words and patches together, scaled and shifted by a time: a block of SD3."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.times = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.rows = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.norms = nn.ModuleList(nn.RMSNorm(DEPTH, eps=1e-6) for _ in range(4))
        self.outs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, words: Tensor, patches: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        heads, gates = [], []
        for at, x in enumerate((words, patches)):
            shift, scale, gate = self.times[at](functional.silu(time))[:, None].chunk(3, -1)
            rows = self.rows[at](self.norm(x) * (1 + scale) + shift)
            q, k, v = rows.view(*x.shape[:2], 3, HEADS, DEPTH).permute(2, 0, 3, 1, 4)
            heads.append((self.norms[2 * at](q), self.norms[2 * at + 1](k), v))
            gates.append(gate)
        q, k, v = (torch.cat(each, 2) for each in zip(*heads, strict=True))
        made = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        first, second = made.split([words.shape[1], patches.shape[1]], 1)
        return words + gates[0] * self.outs[0](first), patches + gates[1] * self.outs[1](second)


def _x(rows: int = ROWS) -> Tensor:
    return torch.randn(1, rows, WIDTH)


def _layer(core: Core, *more: Callable[[], Tensor], **options: Any) -> Callable[[], Made]:
    return lambda: (Layer(core, **options), (_x(), *(each() for each in more)))


def _mask() -> Tensor:
    return (torch.arange(ROWS) < ROWS - 9).long()[None]


MODULES: dict[str, Callable[[], Made]] = {
    "grouped_einsum": _layer(grouped_einsum, shared=2),
    "one_key_head": _layer(one_key_head, shared=1),
    "rotary_pairs": _layer(rotary_pairs),
    "rotary_back": _layer(rotary_back),
    "less_the_largest": _layer(less_the_largest),
    "divided_powers": _layer(divided_powers),
    "divided_results": _layer(divided_results),
    "masked_twice": _layer(masked_twice, _mask),
    "attention_sinks": _layer(sinks),
    "packed_images": lambda: (Layer(packed_images), (_x(36),)),
    "causal_chunks": lambda: (Layer(causal_chunks), (_x(36),)),
    "positive_features": _layer(positive_features),
    "var_mean_norm": _layer(plain, norm=VarMean),
    "length_norm": _layer(plain, norm=Length),
    "power_norm": _layer(plain, norm=Power),
    "heads_in_front": lambda: (HeadsInFront(), (_x(),)),
    "joint_attention": lambda: (Joint(), (_x(7), _x(16), torch.randn(1, WIDTH))),
}
ONE_FORM = {"joint_attention": "dynamo18"}
"""Torch-script has no form of RMSNorm."""

"""Networks of proteins, molecules and graphs: pairs of residues, sequences beside each other, points, distances."""

from __future__ import annotations

from collections.abc import Callable
from math import pi

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[Tensor, ...]]
RESIDUES, SEQUENCES = 37, 9


class Triangle(nn.Module):
    """Each pair takes products of the pairs that both of its ends have with every third."""

    def __init__(self, width: int, *, outgoing: bool) -> None:
        super().__init__()
        self.norm, self.mixed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.both, self.gates = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.out, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.formula = "bikd,bjkd->bijd" if outgoing else "bkid,bkjd->bijd"

    def forward(self, pairs: Tensor, mask: Tensor) -> Tensor:
        z = self.norm(pairs)
        left, right = (self.both(z) * torch.sigmoid(self.gates(z)) * mask[..., None]).chunk(2, -1)
        mixed = torch.einsum(self.formula, left, right)
        return pairs + self.out(self.mixed(mixed)) * torch.sigmoid(self.gate(z))


class PairAttention(nn.Module):
    """Attention along each row (or column) of the pairs, with a bias that all rows share."""

    def __init__(self, width: int, heads: int, *, columns: bool) -> None:
        super().__init__()
        self.heads, self.columns = heads, columns
        self.norm, self.bias = nn.LayerNorm(width), nn.Linear(width, heads, bias=False)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, pairs: Tensor, mask: Tensor) -> Tensor:
        z = self.norm(pairs.transpose(1, 2) if self.columns else pairs)
        masked = (mask.transpose(1, 2) if self.columns else mask)[:, :, None, None, :]
        bias = self.bias(z).permute(0, 3, 1, 2)[:, None]
        q, k, v = (f(z).unflatten(-1, (self.heads, -1)).transpose(2, 3) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias + (masked - 1) * 1e4
        found = (torch.softmax(scores, -1) @ v).transpose(2, 3).flatten(-2)
        found = self.out(found * torch.sigmoid(self.gate(z)))
        return pairs + (found.transpose(1, 2) if self.columns else found)


def transition(width: int, times: int = 4) -> nn.Sequential:
    wide = times * width
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, wide), nn.ReLU(), nn.Linear(wide, width))


class Pairs(nn.Module):
    """A block of a trunk of pairs, and attention of residues that the pairs bias (AlphaFold 3, Boltz, ESMFold)."""

    def __init__(self, width: int = 64, single: int = 128, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.steps = nn.ModuleList([
            Triangle(width, outgoing=True), Triangle(width, outgoing=False),
            PairAttention(width, heads, columns=False), PairAttention(width, heads, columns=True),
        ])  # fmt: skip
        self.transition, self.norm = transition(width), nn.LayerNorm(single)
        self.bias = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, heads, bias=False))
        self.q, self.gate = nn.Linear(single, single), nn.Linear(single, single)
        self.k, self.v, self.out = (nn.Linear(single, single, bias=False) for _ in range(3))
        self.last = transition(single)

    def forward(self, singles: Tensor, pairs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        of_pairs = mask[:, :, None] * mask[:, None, :]
        for step in self.steps:
            pairs = step(pairs, of_pairs)
        pairs = pairs + self.transition(pairs)
        z = self.norm(singles)
        q, k, v = (f(z).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        bias = self.bias(pairs).permute(0, 3, 1, 2) + (mask[:, None, None, :] - 1) * 1e4
        found = functional.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2).flatten(-2)
        singles = singles + self.out(torch.sigmoid(self.gate(z)) * found)
        return singles + self.last(singles), pairs


class Alignment(nn.Module):
    """Sequences beside each other: attention along rows with the pairs' bias, along columns, mean outer products."""

    def __init__(self, width: int = 64, pairs: int = 32, heads: int = 2, narrow: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.rows, self.columns, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.bias = nn.Sequential(nn.LayerNorm(pairs), nn.Linear(pairs, heads, bias=False))
        self.row, self.column = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.row_out, self.column_out = nn.Linear(width, width), nn.Linear(width, width)
        self.left, self.right = nn.Linear(width, narrow), nn.Linear(width, narrow)
        self.outer, self.transition = nn.Linear(narrow * narrow, pairs), transition(width)
        self.values, self.weighed = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, msa: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        bias = self.bias(pairs).permute(0, 3, 1, 2)[:, None]
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(2, 3) for x in self.row(self.rows(msa)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias
        msa = msa + self.row_out((torch.softmax(scores, -1) @ v).transpose(2, 3).flatten(-2))
        z = self.column(self.columns(msa.transpose(1, 2)))
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(2, 3) for x in z.chunk(3, -1))
        found = functional.scaled_dot_product_attention(q, k, v).transpose(2, 3).flatten(-2)
        msa = msa + self.column_out(found).transpose(1, 2)
        weights = torch.softmax(bias[:, 0], -1)
        values = self.values(msa).unflatten(-1, (self.heads, -1))
        msa = msa + self.weighed(torch.einsum("bhij,bsjhd->bsihd", weights, values).flatten(-2))
        msa = msa + self.transition(msa)
        z = self.norm(msa)
        outer = torch.einsum("bsic,bsjd->bijcd", self.left(z), self.right(z)).flatten(-2) / msa.shape[1]
        return msa, pairs + self.outer(outer)


class Points(nn.Module):
    """Invariant point attention: scores are dot products, the pairs' bias, and distances of points in space."""

    def __init__(self, width: int = 128, pairs: int = 32, heads: int = 4, points: int = 4) -> None:
        super().__init__()
        self.heads, self.points = heads, points
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.qp, self.kp, self.vp = (nn.Linear(width, 3 * heads * points) for _ in range(3))
        self.bias, self.weights = nn.Linear(pairs, heads), nn.Parameter(torch.ones(heads))
        self.out = nn.Linear(width + heads * points * 4 + heads * pairs, width)

    def forward(self, x: Tensor, pairs: Tensor, turns: Tensor, shifts: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))

        def moved(f: nn.Linear) -> Tensor:
            local = f(x).unflatten(-1, (self.heads * self.points, 3))
            return (local @ turns.transpose(-1, -2) + shifts[:, :, None]).unflatten(2, (self.heads, self.points))

        qp, kp, vp = (moved(f) for f in (self.qp, self.kp, self.vp))
        apart = (qp[:, :, None] - kp[:, None]).pow(2).sum((-1, -2)).permute(0, 3, 1, 2)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + self.bias(pairs).permute(0, 3, 1, 2)
        weights = torch.softmax(scores - 0.1 * functional.softplus(self.weights)[:, None, None] * apart, -1)
        found = (weights @ v).transpose(1, 2).flatten(2)
        there = torch.einsum("bhij,bjhpc->bihpc", weights, vp) - shifts[:, :, None, None]
        local = torch.einsum("bihpc,bicd->bihpd", there, turns)
        far = torch.sqrt(local.pow(2).sum(-1) + 1e-8)
        seen = torch.einsum("bhij,bijc->bihc", weights, pairs)
        return x + self.out(torch.cat((found, local.flatten(2), far.flatten(2), seen.flatten(2)), -1))


class SchNet(nn.Module):
    """Atoms that gather from all others by filters of their distance (SchNet)."""

    def __init__(self, width: int = 64, steps: int = 25, layers: int = 2) -> None:
        super().__init__()
        self.atoms = nn.Embedding(20, width)
        self.register_buffer("centres", torch.linspace(0, 5, steps))
        self.filters = nn.ModuleList([nn.Sequential(nn.Linear(steps, width), nn.Softplus(), nn.Linear(width, width))
                                      for _ in range(layers)])  # fmt: skip
        self.before = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(layers)])
        self.behind = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))
                                     for _ in range(layers)])  # fmt: skip
        self.head = nn.Linear(width, 1)

    def forward(self, kinds: Tensor, places: Tensor) -> Tensor:
        x = self.atoms(kinds)
        far = torch.sqrt((places[:, :, None] - places[:, None]).pow(2).sum(-1) + 1e-6)
        waves = torch.exp(-10.0 * (far[..., None] - self.centres) ** 2)
        near = (0.5 * (torch.cos(far * (pi / 5)) + 1) * (far < 5).to(far.dtype))[..., None]
        for filters, before, behind in zip(self.filters, self.before, self.behind, strict=True):
            x = x + behind((filters(waves) * near * before(x)[:, None]).sum(2))
        return self.head(x).sum(1)


class Equivariant(nn.Module):
    """Messages of pairs move features and places (EGNN)."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()

        def two(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(a, width), nn.SiLU(), nn.Linear(width, b))

        self.edges = nn.ModuleList([nn.Sequential(two(2 * width + 1, width), nn.SiLU()) for _ in range(layers)])
        self.nodes = nn.ModuleList([two(2 * width, width) for _ in range(layers)])
        self.moves = nn.ModuleList([two(width, 1) for _ in range(layers)])
        self.gates = nn.ModuleList([nn.Linear(width, 1) for _ in range(layers)])

    def forward(self, x: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        count = x.shape[1]
        for edges, nodes, moves, gates in zip(self.edges, self.nodes, self.moves, self.gates, strict=True):
            apart = places[:, :, None] - places[:, None]
            far = apart.pow(2).sum(-1, keepdim=True)
            both = torch.cat((x[:, :, None].expand(-1, -1, count, -1), x[:, None].expand(-1, count, -1, -1), far), -1)
            messages = edges(both)
            messages = messages * torch.sigmoid(gates(messages))
            places = places + (apart / (torch.sqrt(far + 1e-8) + 1) * moves(messages)).mean(2)
            x = x + nodes(torch.cat((x, messages.sum(2)), -1))
        return x, places


class Graphormer(nn.Module):
    """Attention of nodes with biases that distances and edges choose from tables, and degrees in front."""

    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.kinds, self.degrees = nn.Embedding(64, width), nn.Embedding(16, width)
        self.distances, self.edges = nn.Embedding(20, heads), nn.Embedding(12, heads)
        self.token, self.virtual = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(heads, 1))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(width, heads, 192, 0.0, "gelu", batch_first=True,
                                                                norm_first=True) for _ in range(2)])  # fmt: skip
        self.heads, self.head = heads, nn.Linear(width, 1)

    def forward(self, kinds: Tensor, degrees: Tensor, distances: Tensor, edges: Tensor) -> Tensor:
        x = torch.cat((self.token, self.kinds(kinds).sum(-2) + self.degrees(degrees)), 1)
        bias = (self.distances(distances) + self.edges(edges).mean(-2)).permute(0, 3, 1, 2)
        bias = functional.pad(bias, (1, 0, 1, 0)) + self.virtual[:, :, None]
        for layer in self.layers:
            x = layer(x, bias.flatten(0, 1))
        return self.head(x[:, 0])


def masked(length: int = RESIDUES, off: int = 6) -> Tensor:
    mask = torch.ones(1, length)
    mask[:, length - off :] = 0
    return mask


def _turns() -> Tensor:
    return torch.linalg.qr(torch.randn(1, RESIDUES, 3, 3))[0].contiguous()


def ids(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, (1, *shape))


MODULES: dict[str, Callable[[], Made]] = {
    "pair_former": lambda: (Pairs(), (torch.randn(1, RESIDUES, 128), torch.randn(1, RESIDUES, RESIDUES, 64), masked())),
    "alignments": lambda: (Alignment(), (
        torch.randn(1, SEQUENCES, RESIDUES, 64), torch.randn(1, RESIDUES, RESIDUES, 32))),
    "invariant_points": lambda: (Points(), (
        torch.randn(1, RESIDUES, 128), torch.randn(1, RESIDUES, RESIDUES, 32), _turns(), torch.randn(1, RESIDUES, 3))),
    "sch_net": lambda: (SchNet(), (ids(20, 29), 2 * torch.randn(1, 29, 3))),
    "egnn": lambda: (Equivariant(), (torch.randn(1, 29, 64), torch.randn(1, 29, 3))),
    "graphormer": lambda: (Graphormer(), (ids(64, 33, 9), ids(16, 33), ids(20, 33, 33), ids(12, 33, 33, 3))),
}  # fmt: skip
ONE_FORM = {"alignments": "ts17"}
"""An einsum of it that torch.export does not write."""

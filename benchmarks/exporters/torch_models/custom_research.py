"""More modules that people write and deploy themselves, as `catalog.py` exports them: randomly initialised."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Splines(nn.Module):
    """A layer of KAN: B-splines of every input by Cox and de Boor's recursion, and SiLU beside them."""

    def __init__(self, inputs: int = 12, outputs: int = 8, cells: int = 5, order: int = 3) -> None:
        super().__init__()
        self.order = order
        self.base = nn.Linear(inputs, outputs)
        self.weight = nn.Parameter(0.3 * torch.randn(outputs, inputs, cells + order))
        grid = torch.linspace(-1, 1, cells + 1)
        step = 2 / cells
        grid = torch.cat(
            (grid[0] - step * torch.arange(order, 0, -1), grid, grid[-1] + step * torch.arange(1, order + 1))
        )
        self.register_buffer("grid", grid.expand(inputs, -1).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        each, grid = x.unsqueeze(-1), self.grid
        bases = ((each >= grid[:, :-1]) & (each < grid[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (each - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)]) * bases[:, :, :-1]
            right = (grid[:, k + 1 :] - each) / (grid[:, k + 1 :] - grid[:, 1:-k]) * bases[:, :, 1:]
            bases = left + right
        splines = functional.linear(bases.flatten(1), self.weight.flatten(1))
        return self.base(functional.silu(x)) + splines


class Spectral(nn.Module):
    """FNO: a few frequencies of an image are mixed by complex weights."""

    def __init__(self, width: int = 16, modes: int = 6) -> None:
        super().__init__()
        self.modes = modes
        self.first, self.last = nn.Conv2d(3, width, 1), nn.Conv2d(width, 1, 1)
        self.beside = nn.Conv2d(width, width, 1)
        self.real = nn.Parameter(torch.randn(2, width, width, modes, modes) / width)
        self.imaginary = nn.Parameter(torch.randn(2, width, width, modes, modes) / width)

    def forward(self, field: Tensor) -> Tensor:
        x, m = self.first(field), self.modes
        found = torch.view_as_real(torch.fft.rfft2(x, norm="ortho"))
        out = torch.zeros_like(found)
        for index, rows in enumerate((slice(None, m), slice(-m, None))):
            part = found[:, :, rows, :m]
            a, b, re, im = part[..., 0], part[..., 1], self.real[index], self.imaginary[index]
            made = torch.stack(
                (
                    torch.einsum("bixy,ioxy->boxy", a, re) - torch.einsum("bixy,ioxy->boxy", b, im),
                    torch.einsum("bixy,ioxy->boxy", a, im) + torch.einsum("bixy,ioxy->boxy", b, re),
                ),
                -1,
            )
            out[:, :, rows, :m] = made
        back = torch.fft.irfft2(torch.view_as_complex(out), s=field.shape[-2:], norm="ortho")
        return self.last(functional.gelu(back + self.beside(x)))


class Capsules(nn.Module):
    """Capsules: votes that agree are routed three times, and squashed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 9)
        self.primary = nn.Conv2d(32, 32, 9, stride=2)
        self.votes = nn.Parameter(0.1 * torch.randn(1, 4 * 36, 10, 16, 8))

    @staticmethod
    def squash(x: Tensor) -> Tensor:
        square = (x**2).sum(-1, keepdim=True)
        return square / (1 + square) * x / (square.sqrt() + 1e-8)

    def forward(self, image: Tensor) -> Tensor:
        parts = self.primary(functional.relu(self.conv(image)))
        parts = self.squash(parts.view(parts.shape[0], 4, 8, -1).permute(0, 1, 3, 2).flatten(1, 2))
        votes = (self.votes @ parts[:, :, None, :, None]).squeeze(-1)
        logits = torch.zeros(votes.shape[:3])
        for turn in range(3):
            shares = logits.softmax(2)
            found = self.squash((shares.unsqueeze(-1) * votes).sum(1))
            if turn < 2:
                logits = logits + (votes * found.unsqueeze(1)).sum(-1)
        return found.norm(dim=-1)


class Flows(nn.Module):
    """A neural ODE in steps of Runge and Kutta of fourth order."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(9, 32), nn.Tanh(), nn.Linear(32, 8))

    def slope(self, t: float, y: Tensor) -> Tensor:
        return self.field(torch.cat((y, torch.full_like(y[:, :1], t)), 1))

    def forward(self, y: Tensor) -> Tensor:
        step = 0.25
        for index in range(4):
            t = index * step
            a = self.slope(t, y)
            b = self.slope(t + step / 2, y + step / 2 * a)
            c = self.slope(t + step / 2, y + step / 2 * b)
            y = y + step / 6 * (a + 2 * b + 2 * c + self.slope(t + step, y + step * c))
        return y


class Columns(nn.Module):
    """FT-Transformer: every column of a table is a token."""

    def __init__(self, numbers: int = 5, sizes: tuple[int, ...] = (7, 4, 12), width: int = 32) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(numbers, width)), nn.Parameter(torch.randn(numbers, width))
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        rows = [self.token.expand(numbers.shape[0], -1, -1), numbers.unsqueeze(-1) * self.weight + self.bias]
        rows += [table(kinds[:, index]).unsqueeze(1) for index, table in enumerate(self.tables)]
        return self.head(self.layers(torch.cat(rows, 1))[:, 0]).softmax(-1)


class Machines(nn.Module):
    """DeepFM with a cross network: sums of products of all pairs of embeddings."""

    def __init__(self, fields: int = 6, width: int = 8) -> None:
        super().__init__()
        self.embed, self.linear = nn.Embedding(200, width), nn.Embedding(200, 1)
        self.register_buffer("offsets", torch.arange(fields) * 30)
        size = fields * width
        self.cross = nn.ModuleList(nn.Linear(size, 1) for _ in range(2))
        self.shifts = nn.ParameterList(torch.randn(size) for _ in range(2))
        self.deep = nn.Sequential(nn.Linear(size, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, kinds: Tensor) -> Tensor:
        kinds = kinds + self.offsets
        rows = self.embed(kinds)
        pairs = 0.5 * (rows.sum(1) ** 2 - (rows**2).sum(1)).sum(1, keepdim=True)
        first = flat = rows.flatten(1)
        for layer, shift in zip(self.cross, self.shifts, strict=True):
            flat = first * layer(flat) + shift + flat
        return torch.sigmoid(self.linear(kinds).sum(1) + pairs + self.deep(flat) + flat.mean(1, keepdim=True)).squeeze(
            1
        )


class Fused(nn.Module):
    """A temporal fusion transformer's parts: gated residuals, variable selection, an LSTM, quantiles."""

    def __init__(self, variables: int = 4, width: int = 16) -> None:
        super().__init__()
        self.each = nn.ModuleList(nn.Linear(1, width) for _ in range(variables))
        self.choose = nn.Linear(variables * width, variables)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.gate = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, series: Tensor) -> Tensor:
        rows = torch.stack([layer(series[..., i : i + 1]) for i, layer in enumerate(self.each)], -1)
        shares = self.choose(rows.flatten(2)).softmax(-1).unsqueeze(2)
        chosen = (rows * shares).sum(-1)
        found, _ = self.lstm(chosen)
        found = self.norm(functional.glu(self.gate(functional.elu(found)), -1) + chosen)
        length = series.shape[1]
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        seen, _ = self.attention(found, found, found, attn_mask=mask, need_weights=False)
        return self.head(self.norm(seen + found)[:, -4:])


class Blocks(nn.Module):
    """N-BEATS: backcasts are taken away, forecasts are added up; one has a base of sines."""

    def __init__(self, past: int = 40, future: int = 10) -> None:
        super().__init__()
        t = torch.arange(past + future) / future
        harmonics = torch.arange(1, 6)[:, None] * 2 * math.pi * t
        self.register_buffer("base", torch.cat((harmonics.cos(), harmonics.sin())))
        self.past = past
        self.stacks = nn.ModuleList(
            nn.Sequential(nn.Linear(past, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, size))
            for size in (10, 10, past + future)
        )

    def forward(self, series: Tensor) -> Tensor:
        scale = series.abs().max(1, keepdim=True)[0]
        left, total = series / scale, 0.0
        for index, stack in enumerate(self.stacks):
            made = stack(left)
            made = made @ self.base if index < 2 else made
            left, total = left - made[:, : self.past], total + made[:, self.past :]
        return total * scale


class Mixed(nn.Module):
    """TSMixer with reversible normalisation."""

    def __init__(self, length: int = 32, variables: int = 5, future: int = 8) -> None:
        super().__init__()
        self.time, self.features = nn.Linear(length, length), nn.Linear(variables, variables)
        self.norm = nn.BatchNorm1d(length)
        self.head = nn.Linear(length, future)

    def forward(self, series: Tensor) -> Tensor:
        mean, deviation = series.mean(1, keepdim=True), torch.sqrt(series.var(1, keepdim=True, unbiased=False) + 1e-5)
        x = (series - mean) / deviation
        x = x + functional.relu(self.time(self.norm(x).transpose(1, 2))).transpose(1, 2)
        x = x + functional.gelu(self.features(x))
        return self.head(x.transpose(1, 2)).transpose(1, 2) * deviation + mean


class Turned(nn.Module):
    """PointNet: a transformation of points that a network finds, shared layers, a maximum of all points."""

    def __init__(self) -> None:
        super().__init__()
        self.find = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1))
        self.matrix = nn.Linear(64, 9)
        self.shared = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1))
        self.each = nn.Conv1d(128, 5, 1)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        matrix = self.matrix(self.find(points).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        found = self.shared(torch.bmm(matrix, points))
        whole, where = found.max(2, keepdim=True)
        each = self.each(torch.cat((found, whole.expand(-1, -1, found.shape[2])), 1))
        return each.log_softmax(1), where


class Hourglass(nn.Module):
    """An hourglass whose peaks are found by soft arg max, with coordinates as channels."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(5, width, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.beside = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(3))
        self.last = nn.Conv2d(width, 6, 1)

    def forward(self, image: Tensor) -> Tensor:
        batch, _, height, width = image.shape
        ys, xs = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)
        grid = torch.stack(torch.meshgrid(ys, xs, indexing="ij")).expand(batch, -1, -1, -1)
        x, held = self.first(torch.cat((image, grid), 1)), []
        for down, beside in zip(self.down, self.beside, strict=True):
            held.append(beside(x))
            x = functional.relu(down(functional.max_pool2d(x, 2)))
        while held:
            x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True) + held.pop()
        heat = self.last(x).flatten(2).softmax(-1).view(batch, 6, height, width)
        return torch.stack(((heat.sum(2) * xs).sum(-1), (heat.sum(3) * ys).sum(-1)), -1)


class Rows(nn.Module):
    """Criss-cross and non-local attention with a learned share."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Conv2d(width, 4, 1), nn.Conv2d(width, 4, 1), nn.Conv2d(width, width, 1)
        self.share = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        down = torch.einsum("bchw,bcgw->bhwg", q, k) + torch.diag(torch.full((x.shape[2],), -1e4))[None, :, None]
        along = torch.einsum("bchw,bchg->bhwg", q, k)
        shares = torch.cat((down, along), -1).softmax(-1)
        a, b = shares.split((x.shape[2], x.shape[3]), -1)
        found = torch.einsum("bhwg,bcgw->bchw", a, v) + torch.einsum("bhwg,bchg->bchw", b, v)
        whole = torch.bmm(q.flatten(2).transpose(1, 2), k.flatten(2)).softmax(-1)
        return self.share * found + x + torch.bmm(v.flatten(2), whole.transpose(1, 2)).view_as(x)


class Convolved(nn.Module):
    """TCN: dilated causal convolutions with normalised weights, cut at their ends."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (4, 16, 16, 16)
        self.convs = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(a, b, 3, padding=2 * 2**i, dilation=2**i))
            for i, (a, b) in enumerate(itertools.pairwise(sizes))
        )
        self.down = nn.Conv1d(4, 16, 1)

    def forward(self, series: Tensor) -> Tensor:
        x = series
        for index, conv in enumerate(self.convs):
            found = functional.relu(conv(x)[:, :, : x.shape[2]])
            x = functional.relu(found + (self.down(x) if index == 0 else x))
        return x[:, :, -1]


class Dynamic(nn.Module):
    """Convolutions whose weights are mixed for each image (CondConv), and involution."""

    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(16, 4)
        self.experts = nn.Parameter(0.1 * torch.randn(4, 16 * 16 * 9))
        self.kernel = nn.Conv2d(16, 2 * 9, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        weight = (torch.sigmoid(self.route(x.mean((2, 3)))) @ self.experts).view(-1, channels, 3, 3)
        found = functional.conv2d(x.reshape(1, -1, height, width), weight, padding=1, groups=batch)
        found = found.view(batch, -1, height, width)
        kernel = self.kernel(found).view(batch, 2, 1, 9, height, width)
        patches = functional.unfold(found, 3, padding=1).view(batch, 2, channels // 2, 9, height, width)
        return (kernel * patches).sum(3).view(batch, channels, height, width)


class Gates(nn.Module):
    """A minimal gated recurrence, written as a loop and as sums of logarithms, and an exponential average."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        gate, value = torch.sigmoid(self.gate(rows)), self.value(rows)
        state, states = torch.zeros_like(rows[:, 0]), []
        for index in range(rows.shape[1]):
            state = (1 - gate[:, index]) * state + gate[:, index] * value[:, index]
            states.append(state)
        logs = torch.cumsum(functional.logsigmoid(-self.gate(rows)), 1)
        scan = torch.exp(logs) * torch.cumsum(torch.exp(-logs) * value * gate, 1)
        return torch.stack(states, 1), scan


class Boxes(nn.Module):
    """What follows a detector: anchors, decoded and clipped boxes, the best of each class, overlaps of all pairs."""

    def __init__(self) -> None:
        super().__init__()
        ys, xs = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        self.register_buffer("centres", torch.stack((xs, ys), -1).reshape(-1, 2) * 16 + 8)
        self.head = nn.Conv2d(16, 4 + 5, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self.head(x).permute(0, 2, 3, 1).flatten(1, 2)
        middle, size = self.centres + 16 * found[..., :2], 32 * found[..., 2:4].clamp(max=4).exp()
        boxes = torch.cat((middle - size / 2, middle + size / 2), -1).clamp(0, 128)
        scores, kinds = found[..., 4:].sigmoid().max(-1)
        best, index = scores.topk(10, dim=1)
        boxes = boxes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
        low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
        high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
        both = (high - low).clamp(min=0).prod(-1)
        area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
        overlap = both / (area[:, :, None] + area[:, None] - both + 1e-6)
        worse = (overlap.triu(1) > 0.5).any(1)
        return boxes, torch.where(worse, torch.zeros_like(best), best), kinds.gather(1, index)


MODULES: dict[str, Callable[[], Made]] = {
    "kan": lambda: (nn.Sequential(Splines(), nn.Tanh(), Splines(8, 4)), (0.9 * torch.tanh(torch.randn(1, 12)),)),
    "fno": lambda: (Spectral(), (torch.randn(1, 3, 24, 30),)),
    "capsules": lambda: (Capsules(), (torch.randn(1, 1, 28, 28),)),
    "neural_ode": lambda: (Flows(), (torch.randn(1, 8),)),
    "ft_transformer": lambda: (Columns(), (torch.randn(1, 5), torch.randint(0, 4, (1, 3)))),
    "deep_fm": lambda: (Machines(), (torch.randint(0, 30, (1, 6)),)),
    "tft": lambda: (Fused(), (torch.randn(1, 20, 4),)),
    "n_beats": lambda: (Blocks(), (torch.randn(1, 40),)),
    "ts_mixer": lambda: (Mixed(), (torch.randn(1, 32, 5),)),
    "point_net": lambda: (Turned(), (torch.randn(1, 3, 64),)),
    "hourglass": lambda: (Hourglass(), (torch.randn(1, 3, 48, 64),)),
    "criss_cross": lambda: (Rows(), (torch.randn(1, 16, 12, 14),)),
    "tcn": lambda: (Convolved(), (torch.randn(1, 4, 50),)),
    "cond_conv": lambda: (Dynamic(), (torch.randn(1, 16, 12, 14),)),
    "min_gru": lambda: (Gates(), (torch.randn(1, 12, 16),)),
    "boxes": lambda: (Boxes(), (torch.randn(1, 16, 8, 8),)),
}  # fmt: skip
ONE_FORM = dict.fromkeys(("fno", "criss_cross"), "dynamo18")
"""Those that torch-script does not export."""

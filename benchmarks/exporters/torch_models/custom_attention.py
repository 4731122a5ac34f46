"""Blocks of convolutional networks that attend to channels and places, each in a small backbone."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exporters.torch_models.custom_backbones import Backbone, Bottleneck, conv

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Cbam(nn.Module):
    """Means and maxima of channels through one perceptron; mean and maximum of places through a window of 7."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Conv2d(width, width // 16, 1, bias=False), nn.ReLU(), nn.Conv2d(width // 16, width, 1, bias=False)
        )
        self.window = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.adaptive_avg_pool2d(x, 1), functional.adaptive_max_pool2d(x, 1)
        x = x * (self.mlp(pooled[0]) + self.mlp(pooled[1])).sigmoid()
        return x * self.window(torch.cat((x.mean(1, True), x.amax(1, True)), 1)).sigmoid()


class Coordinates(nn.Module):
    """Coordinate attention: means of rows and of columns through one convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        less = max(8, width // 32)
        self.both = conv(width, less, 1, 1, nn.Hardswish())
        self.rows, self.columns = nn.Conv2d(less, width, 1), nn.Conv2d(less, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = x.mean(3, True), x.mean(2, True).permute(0, 1, 3, 2)
        rows, columns = self.both(torch.cat((rows, columns), 2)).split((x.shape[2], x.shape[3]), 2)
        return x * self.rows(rows).sigmoid() * self.columns(columns.permute(0, 1, 3, 2)).sigmoid()


class Energy(nn.Module):
    """SimAM: a gate of each element from how far it is from its channel's mean."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[2] * x.shape[3] - 1
        far = (x - x.mean((2, 3), True)).pow(2)
        return x * torch.sigmoid(far / (4 * (far.sum((2, 3), True) / count + 1e-4)) + 0.5)


class Triplet(nn.Module):
    """Three gates, each of two axes, from maximum and mean of the third."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates = nn.ModuleList(conv(2, 1, 7) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for gate, axes in zip(self.gates, ((0, 2, 1, 3), (0, 3, 2, 1), (0, 1, 2, 3)), strict=True):
            y = x.permute(axes).contiguous()
            y = y * gate(torch.cat((y.max(1)[0].unsqueeze(1), y.mean(1).unsqueeze(1)), 1)).sigmoid()
            found.append(y.permute(axes).contiguous())
        return sum(found) / 3


class Multiscale(nn.Module):
    """EMA: rows and columns of groups gate each other, and two branches weigh each other's places by a product."""

    def __init__(self, width: int, groups: int = 8) -> None:
        super().__init__()
        self.groups, part = groups, width // groups
        self.norm, self.one, self.three = (
            nn.GroupNorm(part, part),
            nn.Conv2d(part, part, 1),
            nn.Conv2d(part, part, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, width, rows, columns = x.shape
        each = x.reshape(batch * self.groups, -1, rows, columns)
        high, wide = each.mean(3, True), each.mean(2, True).permute(0, 1, 3, 2)
        high, wide = self.one(torch.cat((high, wide), 2)).split((rows, columns), 2)
        a = self.norm(each * high.sigmoid() * wide.permute(0, 1, 3, 2).sigmoid())
        b = self.three(each)
        first = a.mean((2, 3)).unsqueeze(1).softmax(-1) @ b.flatten(2)
        second = b.mean((2, 3)).unsqueeze(1).softmax(-1) @ a.flatten(2)
        return (each * (first + second).view(-1, 1, rows, columns).sigmoid()).reshape(batch, width, rows, columns)


class Frequencies(nn.Module):
    """FcaNet: cosines in place of the mean, another for each group of channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        places = torch.arange(7) + 0.5
        basis = [
            torch.outer(torch.cos(math.pi * i * places / 7), torch.cos(math.pi * j * places / 7))
            for i in range(4)
            for j in range(4)
        ]
        self.register_buffer("basis", torch.stack(basis).repeat_interleave(width // 16, 0)[None])
        self.mlp = nn.Sequential(
            nn.Linear(width, width // 16, False), nn.ReLU(), nn.Linear(width // 16, width, False), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        gate = (functional.adaptive_avg_pool2d(x, 7) * self.basis).sum((2, 3))
        return x * self.mlp(gate)[:, :, None, None].expand_as(x)


class Strips(nn.Module):
    """Strip pooling: means of rows and columns, each through a window along it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        less = width // 4
        self.reduced = conv(width, less, 1, 1, nn.ReLU())
        self.high = nn.Sequential(nn.Conv2d(less, less, (3, 1), padding=(1, 0), bias=False), nn.BatchNorm2d(less))
        self.wide = nn.Sequential(nn.Conv2d(less, less, (1, 3), padding=(0, 1), bias=False), nn.BatchNorm2d(less))
        self.last = nn.Conv2d(less, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.reduced(x)
        high = functional.interpolate(
            self.high(functional.adaptive_avg_pool2d(y, (None, 1))), y.shape[2:], mode="bilinear", align_corners=True
        )
        wide = functional.interpolate(
            self.wide(functional.adaptive_avg_pool2d(y, (1, None))), y.shape[2:], mode="bilinear", align_corners=True
        )
        return x * self.last(functional.relu(high + wide)).sigmoid()


class Split(nn.Module):
    """EPSA: windows of four sizes, each with squeeze and excitation, weighed against each other by a softmax."""

    def __init__(self, width: int) -> None:
        super().__init__()
        part = width // 4
        self.convs = nn.ModuleList(
            nn.Conv2d(width, part, k, padding=k // 2, groups=g, bias=False)
            for k, g in ((3, 1), (5, 4), (7, 8), (9, 16))
        )
        self.gates = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(part, max(part // 16, 1), 1),
            nn.ReLU(),
            nn.Conv2d(max(part // 16, 1), part, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = [each(x) for each in self.convs]
        weights = torch.stack([self.gates(each) for each in parts], 1).softmax(1)
        found = torch.stack(parts, 1) * weights
        return torch.cat([found[:, i] for i in range(4)], 1)


class Double(nn.Module):
    """A2: features gathered by attention maps and spread by others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.less = width // 4
        self.a, self.b, self.v = (nn.Conv2d(width, self.less, 1) for _ in range(3))
        self.last = nn.Conv2d(self.less, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, rows, columns = x.shape
        a, maps, vectors = (
            self.a(x).view(batch, self.less, -1),
            self.b(x).view(batch, self.less, -1).softmax(-1),
            self.v(x).view(batch, self.less, -1).softmax(1),
        )
        found = torch.bmm(torch.bmm(a, maps.transpose(1, 2)), vectors)
        return x + self.last(found.view(batch, self.less, rows, columns))


def attended(attention: Callable[[int], nn.Module]) -> Made:
    return Backbone(lambda width: Bottleneck(width, attention)), (torch.randn(1, 3, 96, 96),)


MODULES: dict[str, Callable[[], Made]] = {
    "cbam": lambda: attended(Cbam),
    "coordinates": lambda: attended(Coordinates),
    "simam": lambda: attended(Energy),
    "triplet": lambda: attended(Triplet),
    "ema": lambda: attended(Multiscale),
    "fca_net": lambda: attended(Frequencies),
    "epsa": lambda: attended(Split),
    "strip_pooling": lambda: attended(Strips),
    "double_attention": lambda: attended(Double),
}

ONE_FORM = {"fca_net": "dynamo18", "strip_pooling": "dynamo18"}
"""Those that torch-script does not export."""

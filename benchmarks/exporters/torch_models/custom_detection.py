"""Detectors' blocks, necks and heads, and stacked hourglasses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exporters.torch_models.custom_trunk import Trunk, conv

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Yolo(nn.Module):
    """YOLOv7: ELAN blocks, poolings beside strided windows, SPPCSPC, implicit knowledge; decoupled heads as YOLOX's."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv(3, width, 3, 1, "silu"), conv(width, 2 * width, 3, 2, "silu"), conv(2 * width, 2 * width, 3, 2, "silu")
        )
        self.elans = nn.ModuleList(self._elan(2 * width * 2**i, width * 2**i, 4 * width * 2**i) for i in range(3))
        self.downs = nn.ModuleList(
            nn.ModuleList(
                (
                    conv(4 * width * 2**i, 2 * width * 2**i, 1, 1, "silu"),
                    conv(4 * width * 2**i, 2 * width * 2**i, 1, 1, "silu"),
                    conv(2 * width * 2**i, 2 * width * 2**i, 3, 2, "silu"),
                )
            )
            for i in range(2)
        )
        big = 16 * width
        self.spp = nn.ModuleList(
            (
                conv(big, big // 2, 1, 1, "silu"),
                conv(big, big // 2, 1, 1, "silu"),
                conv(2 * big, big // 2, 1, 1, "silu"),
                conv(big, big // 2, 1, 1, "silu"),
            )
        )
        self.lateral = nn.ModuleList(
            (conv(8 * width, 8 * width, 1, 1, "silu"), conv(4 * width, 8 * width, 1, 1, "silu"))
        )
        self.merged = nn.ModuleList(
            (self._elan(16 * width, 4 * width, 8 * width), self._elan(16 * width, 4 * width, 8 * width))
        )
        self.towers = nn.ModuleList(
            nn.ModuleList((conv(8 * width, 128, 3, 1, "silu"), conv(8 * width, 128, 3, 1, "silu"))) for _ in range(3)
        )
        self.outs = nn.ModuleList(
            nn.ModuleList((nn.Conv2d(128, 80, 1), nn.Conv2d(128, 4, 1), nn.Conv2d(128, 1, 1))) for _ in range(3)
        )
        self.added, self.scaled = nn.Parameter(torch.zeros(1, 8 * width, 1, 1)), nn.Parameter(torch.ones(1, 85, 1, 1))

    @staticmethod
    def _elan(a: int, inner: int, b: int) -> nn.ModuleList:
        return nn.ModuleList(
            (
                conv(a, inner, 1, 1, "silu"),
                conv(a, inner, 1, 1, "silu"),
                nn.Sequential(conv(inner, inner, 3, 1, "silu"), conv(inner, inner, 3, 1, "silu")),
                nn.Sequential(conv(inner, inner, 3, 1, "silu"), conv(inner, inner, 3, 1, "silu")),
                conv(4 * inner, b, 1, 1, "silu"),
            )
        )

    @staticmethod
    def _run(elan: nn.ModuleList, x: Tensor) -> Tensor:
        a, b = elan[0](x), elan[1](x)
        c = elan[2](b)
        return elan[4](torch.cat((elan[3](c), c, b, a), 1))

    def forward(self, image: Tensor) -> Tensor:
        x, maps = self.stem(image), []
        for i, elan in enumerate(self.elans):
            x = self._run(elan, x)
            maps.append(x)
            if i < 2:
                a, b, c = self.downs[i]
                x = torch.cat((a(functional.max_pool2d(x, 2, 2)), c(b(x))), 1)
        y = self.spp[0](x)
        y = self.spp[2](torch.cat([y, *(functional.max_pool2d(y, k, 1, k // 2) for k in (5, 9, 13))], 1))
        top = self.spp[3](torch.cat((y, self.spp[1](x)), 1))
        found, outs = [top], []
        for lateral, merged, held in zip(self.lateral, self.merged, (maps[1], maps[0]), strict=True):
            top = self._run(
                merged, torch.cat((lateral(held), functional.interpolate(top, scale_factor=2, mode="nearest")), 1)
            )
            found.append(top)
        for (a, b), (kinds, boxes, there), each in zip(self.towers, self.outs, found, strict=True):
            each = each + self.added
            left, right = a(each), b(each)
            every = torch.cat((boxes(right), there(right).sigmoid(), kinds(left).sigmoid()), 1) * self.scaled
            outs.append(every.flatten(2))
        return torch.cat(outs, 2).permute(0, 2, 1)


class Gelan(nn.Module):
    """YOLOv9: blocks of cross-stage blocks with re-parameterised windows, and downsampling by means and maxima."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 3, 2, "silu"), conv(width, width, 3, 2, "silu"))
        self.first, self.last = conv(width, width, 1, 1, "silu"), conv(2 * width, 2 * width, 1, 1, "silu")
        self.csps = nn.ModuleList(self._csp(width // 2) for _ in range(2))
        self.down = nn.ModuleList((conv(width, width, 3, 2, "silu"), conv(width, width, 1, 1, "silu")))
        self.spp = nn.ModuleList((conv(2 * width, width, 1, 1, "silu"), conv(4 * width, 2 * width, 1, 1, "silu")))

    @staticmethod
    def _csp(width: int) -> nn.ModuleList:
        return nn.ModuleList(
            (
                conv(width, width // 2, 1, 1, "silu"),
                conv(width, width // 2, 1, 1, "silu"),
                conv(width // 2, width // 2, 3, 1, None),
                conv(width // 2, width // 2, 1, 1, None),
                conv(width // 2, width // 2, 3, 1, "silu"),
                conv(width, width, 1, 1, "silu"),
                conv(width, width, 3, 1, "silu"),
            )
        )

    def forward(self, image: Tensor) -> Tensor:
        parts = list(self.first(self.stem(image)).chunk(2, 1))
        for a, b, three, one, inner, joined, last in self.csps:
            y = a(parts[-1])
            y = y + inner(functional.silu(three(y) + one(y)))
            parts.append(last(joined(torch.cat((y, b(parts[-1])), 1))))
        x = self.last(torch.cat(parts, 1))
        a, b = functional.avg_pool2d(x, 2, 1, 0, False, True).chunk(2, 1)
        x = torch.cat((self.down[0](a), self.down[1](functional.max_pool2d(b, 3, 2, 1))), 1)
        y = [self.spp[0](x)]
        for _ in range(3):
            y.append(functional.max_pool2d(y[-1], 5, 1, 2))
        return self.spp[1](torch.cat(y, 1))


class Weighted(nn.Module):
    """EfficientDet: maps joined by weights that are divided by their sum, depthwise windows, shared heads."""

    def __init__(self, width: int = 88) -> None:
        super().__init__()
        self.trunk = Trunk((32, 64, 128, 256))
        self.lateral = nn.ModuleList(conv(each, width, 1, 1, None) for each in (64, 128, 256))

        def apart() -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
                nn.Conv2d(width, width, 1),
                nn.BatchNorm2d(width),
            )

        self.merged = nn.ModuleList(apart() for _ in range(4))
        self.weights = nn.ParameterList(nn.Parameter(torch.rand(n)) for n in (2, 2, 3, 2))
        self.tower = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, groups=width), nn.Conv2d(width, width, 1))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(3))
        self.head = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, groups=width), nn.Conv2d(width, 9 * 20, 1))

    def _join(self, index: int, *maps: Tensor) -> Tensor:
        weights = functional.relu(self.weights[index])
        weights = weights / (weights.sum() + 1e-4)
        return self.merged[index](functional.silu(sum(weights[i] * each for i, each in enumerate(maps))))

    def forward(self, image: Tensor) -> Tensor:
        p3, p4, p5 = (lateral(each) for lateral, each in zip(self.lateral, self.trunk(image)[1:], strict=True))

        def up(x: Tensor) -> Tensor:
            return functional.interpolate(x, scale_factor=2, mode="nearest")

        def down(x: Tensor) -> Tensor:
            return functional.max_pool2d(x, 3, 2, 1)

        m4 = self._join(0, p4, up(p5))
        o3 = self._join(1, p3, up(m4))
        o4 = self._join(2, p4, m4, down(o3))
        o5 = self._join(3, p5, down(o4))
        found = [
            self.head(functional.silu(norm(self.tower(each))))
            for norm, each in zip(self.norms, (o3, o4, o5), strict=True)
        ]
        return torch.cat([each.permute(0, 2, 3, 1).reshape(each.shape[0], -1, 20) for each in found], 1).sigmoid()


class Stacked(nn.Module):
    """Stacked hourglass: pre-activated residuals, and each stack's heat maps go into the next."""

    def __init__(self, width: int = 128, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv(3, 64, 7, 2), self._residual(64, width), nn.MaxPool2d(2), self._residual(width, width)
        )
        self.depth = depth
        self.stacks = nn.ModuleList(
            nn.ModuleList(self._residual(width, width) for _ in range(3 * depth + 1)) for _ in range(2)
        )
        self.features = nn.ModuleList(conv(width, width, 1) for _ in range(2))
        self.heads = nn.ModuleList(nn.Conv2d(width, 16, 1) for _ in range(2))
        self.back, self.more = nn.Conv2d(16, width, 1), nn.Conv2d(width, width, 1)

    class Residual(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.BatchNorm2d(a),
                nn.ReLU(),
                nn.Conv2d(a, b // 2, 1),
                nn.BatchNorm2d(b // 2),
                nn.ReLU(),
                nn.Conv2d(b // 2, b // 2, 3, padding=1),
                nn.BatchNorm2d(b // 2),
                nn.ReLU(),
                nn.Conv2d(b // 2, b, 1),
            )
            self.short = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) + self.short(x)

    def _residual(self, a: int, b: int) -> nn.Module:
        return Stacked.Residual(a, b)

    def _glass(self, stack: nn.ModuleList, x: Tensor, depth: int) -> Tensor:
        up, low, after = stack[3 * depth : 3 * depth + 3] if depth < self.depth else (None, None, None)
        if depth == self.depth:
            return stack[-1](x)
        y = after(self._glass(stack, low(functional.max_pool2d(x, 2)), depth + 1))
        return up(x) + functional.interpolate(y, scale_factor=2, mode="nearest")

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x, found = self.stem(image), []
        for i, stack in enumerate(self.stacks):
            y = self.features[i](self._glass(stack, x, 0))
            found.append(self.heads[i](y))
            if i == 0:
                x = x + self.more(y) + self.back(found[0])
        return tuple(found)


class Binary(nn.Module):
    """DBNet: a text's probability and threshold by transposed convolutions, and a steep sigmoid of the difference."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk((24, 48, 96, 192), "hswish")
        self.lateral = nn.ModuleList(nn.Conv2d(each, 96, 1, bias=False) for each in (24, 48, 96, 192))
        self.smooth = nn.ModuleList(nn.Conv2d(96, 24, 3, padding=1, bias=False) for _ in range(4))

        def head() -> nn.Module:
            return nn.Sequential(
                conv(96, 24),
                nn.ConvTranspose2d(24, 24, 2, 2),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.ConvTranspose2d(24, 1, 2, 2),
                nn.Sigmoid(),
            )

        self.likely, self.threshold = head(), head()

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        maps = [lateral(each) for lateral, each in zip(self.lateral, self.trunk(image), strict=True)]
        for i in (2, 1, 0):
            maps[i] = maps[i] + functional.interpolate(maps[i + 1], scale_factor=2)
        x = torch.cat(
            [
                functional.interpolate(smooth(each), scale_factor=2**i)
                for i, (smooth, each) in enumerate(zip(self.smooth, maps, strict=True))
            ],
            1,
        )
        likely, threshold = self.likely(x), self.threshold(x)
        return likely, 1 / (1 + torch.exp(-50 * (likely - threshold)))


def picture(size: int = 256) -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, size, size),)


MODULES: dict[str, Callable[[], Made]] = {
    "yolo_v7": lambda: (Yolo(), picture(320)),
    "yolo_v9": lambda: (Gelan(), picture(320)),
    "efficient_det": lambda: (Weighted(), picture()),
    "stacked_hourglass": lambda: (Stacked(), picture()),
    "db_net": lambda: (Binary(), picture(320)),
}

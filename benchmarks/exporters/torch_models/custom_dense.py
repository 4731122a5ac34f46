"""Networks that say something of every pixel, or of boxes: segmentation, poses and mattes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exporters.torch_models.custom_trunk import Trunk, conv

Made = tuple[nn.Module, tuple[Tensor, ...]]


def grown(x: Tensor, like: Tensor, corners: bool = False) -> Tensor:
    return functional.interpolate(x, size=like.shape[2:], mode="bilinear", align_corners=corners)


class PyramidAttention(nn.Module):
    """PAN: a pyramid of windows of 7, 5 and 3 that weighs the deepest map, and global gates on the way up."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk()
        self.mid, self.pool = conv(512, 64, 1), conv(512, 64, 1)
        self.down = nn.ModuleList((conv(512, 1, 7), conv(1, 1, 5), conv(1, 1, 3)))
        self.side = nn.ModuleList((conv(1, 1, 7), conv(1, 1, 5), conv(1, 1, 3)))
        self.low = nn.ModuleList(conv(width, 64, 3) for width in (256, 128, 64))
        self.gates = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(64, 64, 1), nn.Sigmoid()) for _ in range(3)
        )
        self.head = nn.Conv2d(64, 21, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        *low, x = self.trunk(image)
        pooled = grown(self.pool(functional.adaptive_avg_pool2d(x, 1)), x, True)
        maps, y = [], x
        for down in self.down:
            y = down(functional.max_pool2d(y, 2) if min(y.shape[2:]) > 1 else y)
            maps.append(y)
        y = self.side[2](maps[2])
        y = grown(y, maps[1], True) + self.side[1](maps[1])
        y = grown(y, maps[0], True) + self.side[0](maps[0])
        x = grown(y, x, True) * self.mid(x) + pooled
        for gate, reduce, held in zip(self.gates, self.low, reversed(low), strict=True):
            x = grown(x, held, True) + reduce(held) * gate(x)
        return grown(self.head(x), image, True)


class Pooled(nn.Module):
    """PSPNet: means of 1, 2, 3 and 6 cells, grown and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Trunk()
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(size), conv(512, 128, 1)) for size in (1, 2, 3, 6)
        )
        self.head = nn.Sequential(conv(1024, 256), nn.Dropout2d(0.1), nn.Conv2d(256, 21, 1))

    def forward(self, image: Tensor) -> Tensor:
        x = self.trunk(image)[-1]
        return grown(self.head(torch.cat([x, *(grown(each(x), x) for each in self.pools)], 1)), image)


class Bilateral(nn.Module):
    """BiSeNet V2: a path of details, one of meaning with gathered and expanded windows, and the two gate each other."""

    def __init__(self) -> None:
        super().__init__()
        self.detail = nn.Sequential(
            conv(3, 64, 3, 2), conv(64, 64), conv(64, 64, 3, 2), conv(64, 64), conv(64, 128, 3, 2), conv(128, 128)
        )
        self.stem = conv(3, 16, 3, 2)
        self.left, self.fuse = nn.Sequential(conv(16, 8, 1), conv(8, 16, 3, 2)), conv(32, 16)
        self.gathered = nn.ModuleList(self._gather(a, b) for a, b in ((16, 32), (32, 64), (64, 128)))
        self.mean, self.context = conv(128, 128, 1), conv(128, 128)
        self.a1 = nn.Sequential(conv(128, 128, 3, 1, None, groups=128), nn.Conv2d(128, 128, 1))
        self.a2 = nn.Sequential(conv(128, 128, 3, 2, None), nn.AvgPool2d(3, 2, 1))
        self.b1 = conv(128, 128, 3, 1, None)
        self.b2 = nn.Sequential(conv(128, 128, 3, 1, None, groups=128), nn.Conv2d(128, 128, 1))
        self.last = nn.Sequential(conv(128, 128, 3, 1, None), conv(128, 256), nn.Conv2d(256, 19, 1))

    @staticmethod
    def _gather(a: int, b: int) -> nn.ModuleList:
        main = nn.Sequential(
            conv(a, a),
            conv(a, 6 * a, 3, 2, None, groups=a),
            conv(6 * a, 6 * a, 3, 1, None, groups=6 * a),
            conv(6 * a, b, 1, 1, None),
        )
        return nn.ModuleList((main, nn.Sequential(conv(a, a, 3, 2, None, groups=a), conv(a, b, 1, 1, None))))

    def forward(self, image: Tensor) -> Tensor:
        detail, x = self.detail(image), self.stem(image)
        x = self.fuse(torch.cat((self.left(x), functional.max_pool2d(x, 3, 2, 1)), 1))
        for main, short in self.gathered:
            x = functional.relu(main(x) + short(x))
        x = self.context(x + self.mean(x.mean((2, 3), True)))
        a = self.a1(detail) * grown(self.b1(x), detail).sigmoid()
        b = self.a2(detail) * self.b2(x).sigmoid()
        return functional.interpolate(self.last(a + grown(b, a)), scale_factor=8, mode="bilinear", align_corners=True)


class TwoPaths(nn.Module):
    """DDRNet and PIDNet: two resolutions that exchange, and means of growing windows added up one by one."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv(3, width, 3, 2), conv(width, width, 3, 2), conv(width, 2 * width, 3, 2), conv(2 * width, 2 * width)
        )
        self.high, self.low = (
            nn.ModuleList(conv(2 * width, 2 * width) for _ in range(2)),
            nn.ModuleList((conv(2 * width, 4 * width, 3, 2), conv(4 * width, 8 * width, 3, 2))),
        )
        self.to_high = nn.ModuleList((conv(4 * width, 2 * width, 1, 1, None), conv(8 * width, 2 * width, 1, 1, None)))
        self.to_low = nn.ModuleList(
            (
                conv(2 * width, 4 * width, 3, 2, None),
                nn.Sequential(conv(2 * width, 4 * width, 3, 2), conv(4 * width, 8 * width, 3, 2, None)),
            )
        )
        pools = [
            nn.Identity(),
            nn.AvgPool2d(5, 2, 2),
            nn.AvgPool2d(9, 4, 4),
            nn.AvgPool2d(17, 8, 8),
            nn.AdaptiveAvgPool2d(1),
        ]

        def before(a: int, b: int, k: int) -> nn.Module:
            return nn.Sequential(nn.BatchNorm2d(a), nn.ReLU(), nn.Conv2d(a, b, k, padding=k // 2, bias=False))

        self.scales = nn.ModuleList(nn.Sequential(pool, before(8 * width, 96, 1)) for pool in pools)
        self.process = nn.ModuleList(before(96, 96, 3) for _ in range(4))
        self.compress, self.short = before(480, 4 * width, 1), before(8 * width, 4 * width, 1)
        self.last = nn.Conv2d(2 * width, 4 * width, 1)
        self.head = nn.Sequential(before(4 * width, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 19, 1))

    def forward(self, image: Tensor) -> Tensor:
        high = low = self.stem(image)
        for i in range(2):
            low, held = self.low[i](low), self.high[i](high)
            high = functional.relu(held + grown(self.to_high[i](low), held))
            low = functional.relu(low + self.to_low[i](held))
        parts = [self.scales[0](low)]
        for scale, process in zip(self.scales[1:], self.process, strict=True):
            parts.append(process(grown(scale(low), low) + parts[-1]))
        low = self.compress(torch.cat(parts, 1)) + self.short(low)
        return grown(self.head(self.last(high) + grown(low, high)), image)


class Exchange(nn.Module):
    """HRNet: four resolutions that all exchange, for heat maps; with `objects`, OCR's context of object regions."""

    def __init__(self, width: int = 32, objects: bool = False) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(3)]
        self.stem = nn.Sequential(conv(3, 64, 3, 2), conv(64, 64, 3, 2), conv(64, width))
        self.start = nn.ModuleList(
            (
                nn.Identity(),
                conv(width, widths[1], 3, 2),
                nn.Sequential(conv(width, width, 3, 2), conv(width, widths[2], 3, 2)),
            )
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.ModuleList((conv(w, w), conv(w, w, 3, 1, None))) for w in widths) for _ in range(2)
        )
        self.fuse = nn.ModuleList(
            nn.ModuleList(nn.ModuleList(self._fuse(widths, i, j) for j in range(3)) for i in range(3)) for _ in range(2)
        )
        self.objects = objects
        if objects:
            total = sum(widths)
            self.aux = nn.Sequential(conv(total, total, 1), nn.Conv2d(total, 19, 1))
            self.pixels = conv(total, 256)
            self.query, self.key, self.value, self.up = (
                conv(256, 128, 1),
                conv(256, 128, 1),
                conv(256, 128, 1),
                conv(128, 256, 1),
            )
            self.joined, self.head = conv(512, 256, 1), nn.Conv2d(256, 19, 1)
        else:
            self.head = nn.Conv2d(width, 17, 1)

    @staticmethod
    def _fuse(widths: list[int], i: int, j: int) -> nn.Module:
        if i == j:
            return nn.Identity()
        if j > i:
            return nn.Sequential(
                conv(widths[j], widths[i], 1, 1, None), nn.Upsample(scale_factor=2 ** (j - i), mode="nearest")
            )
        steps = [conv(widths[j], widths[j], 3, 2) for _ in range(i - j - 1)]
        return nn.Sequential(*steps, conv(widths[j], widths[i], 3, 2, None))

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        maps = [each(x) for each in self.start]
        for blocks, fuse in zip(self.blocks, self.fuse, strict=True):
            maps = [functional.relu(held + block[1](block[0](held))) for held, block in zip(maps, blocks, strict=True)]
            maps = [functional.relu(sum(each(held) for each, held in zip(row, maps, strict=True))) for row in fuse]
        if not self.objects:
            return self.head(maps[0])
        x = torch.cat([maps[0], *(grown(each, maps[0]) for each in maps[1:])], 1)
        regions, pixels = self.aux(x).flatten(2).softmax(-1), self.pixels(x)
        context = torch.matmul(regions, pixels.flatten(2).transpose(1, 2)).transpose(1, 2).unsqueeze(3)
        query, key, value = (
            self.query(pixels).flatten(2).transpose(1, 2),
            self.key(context).flatten(2),
            self.value(context).flatten(2).transpose(1, 2),
        )
        found = (torch.matmul(query, key) * 128**-0.5).softmax(-1) @ value
        found = self.up(found.transpose(1, 2).reshape(x.shape[0], 128, *x.shape[2:]))
        return grown(self.head(self.joined(torch.cat((found, pixels), 1))), image)


class Strided(nn.Module):
    """SegNeXt: depthwise strips of several lengths as a gate, and a decoder that factorises its matrix in steps."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv(3, width // 2, 3, 2), nn.Conv2d(width // 2, width, 3, 2, 1), nn.BatchNorm2d(width)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.first, self.mixed, self.last = (nn.Conv2d(width, width, 1) for _ in range(3))
        self.near = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.strips = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, (1, k), padding=(0, k // 2), groups=width),
                nn.Conv2d(width, width, (k, 1), padding=(k // 2, 0), groups=width),
            )
            for k in (7, 11, 21)
        )
        self.mlp = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width),
            nn.GELU(),
            nn.Conv2d(4 * width, width, 1),
        )
        self.squeeze, self.ham_in, self.ham_out = (
            conv(width, 128, 1),
            nn.Conv2d(128, 128, 1),
            conv(128, 128, 1, 1, None),
        )
        self.register_buffer("bases", functional.normalize(torch.rand(1, 128, 16), dim=1))
        self.head = nn.Sequential(conv(128, 64, 1), nn.Conv2d(64, 19, 1))

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        y = self.norms[0](x)
        u = functional.gelu(self.first(y))
        near = self.near(u)
        x = x + self.last(self.mixed(near + sum(each(near) for each in self.strips)) * u) + y
        x = x + self.mlp(self.norms[1](x))
        x = self.squeeze(x)
        flat = functional.relu(self.ham_in(x)).flatten(2)
        bases = self.bases.expand(x.shape[0], -1, -1)
        coefficients = torch.bmm(flat.transpose(1, 2), bases).softmax(-1)
        for _ in range(3):
            coefficients = (
                coefficients
                * torch.bmm(flat.transpose(1, 2), bases)
                / (coefficients.bmm(bases.transpose(1, 2).bmm(bases)) + 1e-6)
            )
            bases = (
                bases
                * torch.bmm(flat, coefficients)
                / (bases.bmm(coefficients.transpose(1, 2).bmm(coefficients)) + 1e-6)
            )
        found = torch.bmm(bases, coefficients.transpose(1, 2)).view(x.shape)
        return grown(self.head(functional.relu(x + self.ham_out(found))), image)


class Residuals(nn.Module):
    """U2-Net: a small U-Net as the residual of each stage, and maps of all sizes joined."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.first, self.depth = conv(3, width, 3), depth
        self.rsus = nn.ModuleList(self._rsu(width, depth) for _ in range(3))
        self.sides = nn.ModuleList(nn.Conv2d(width, 1, 3, padding=1) for _ in range(3))
        self.last = nn.Conv2d(3, 1, 1)

    @staticmethod
    def _rsu(width: int, depth: int) -> nn.ModuleList:
        half = width // 2
        down = nn.ModuleList(conv(width if i == 0 else half, half) for i in range(depth))
        up = nn.ModuleList(conv(width, width if i == 0 else half) for i in range(depth))
        return nn.ModuleList((conv(width, width), down, conv(half, half, 3, dilation=2), up))

    def forward(self, image: Tensor) -> Tensor:
        x, sides = self.first(image), []
        for (first, down, bottom, up), side in zip(self.rsus, self.sides, strict=True):
            held, y = [], first(x)
            inner = y
            for i, layer in enumerate(down):
                inner = layer(inner if i == 0 else functional.max_pool2d(inner, 2, ceil_mode=True))
                held.append(inner)
            inner = bottom(inner)
            for i in reversed(range(self.depth)):
                inner = up[i](torch.cat((inner if i == self.depth - 1 else grown(inner, held[i]), held[i]), 1))
            x = inner + y
            sides.append(grown(side(x), image))
            x = functional.max_pool2d(x, 2, ceil_mode=True)
        return self.last(torch.cat(sides, 1)).sigmoid()


class Matte(nn.Module):
    """Robust video matting: a convolutional GRU on half of the channels, and a guided filter of box means."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.down = nn.Sequential(conv(3, width, 3, 2, "hswish"), conv(width, width, 3, 2, "hswish"))
        self.gates, self.new = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width // 2, 3, padding=1)
        self.up = conv(width + 3, width)
        self.head = nn.Conv2d(width, 4, 1)
        self.refine = nn.Sequential(
            nn.Conv2d(24, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 1)
        )

    def forward(self, image: Tensor, hidden: Tensor) -> tuple[Tensor, ...]:
        small = functional.interpolate(image, scale_factor=0.5, mode="bilinear", align_corners=False)
        a, b = self.down(small).chunk(2, 1)
        reset, update = self.gates(torch.cat((b, hidden), 1)).sigmoid().chunk(2, 1)
        new = self.new(torch.cat((b, reset * hidden), 1)).tanh()
        hidden = (1 - update) * hidden + update * new
        y = functional.interpolate(torch.cat((a, hidden), 1), scale_factor=4, mode="bilinear", align_corners=False)
        y = self.head(self.up(torch.cat((y, small), 1)))
        guide = torch.cat((small, small.mean(1, True)), 1)

        def box(t: Tensor) -> Tensor:
            return functional.avg_pool2d(t, 3, 1, 1)

        mean_x, mean_y = box(guide), box(y)
        cov, var = box(guide * y) - mean_x * mean_y, box(guide * guide) - mean_x * mean_x
        a = self.refine(torch.cat((cov, var, mean_x, mean_y, guide, y), 1))
        b = mean_y - a * mean_x
        full = torch.cat((image, image.mean(1, True)), 1)
        found = grown(a, image) * full + grown(b, image)
        return (found[:, :3] + image).clamp(0, 1), found[:, 3:].clamp(0, 1), hidden


def picture(size: int = 256) -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, size, size),)


MODULES: dict[str, Callable[[], Made]] = {
    "pan": lambda: (PyramidAttention(), picture()),
    "psp_net": lambda: (Pooled(), picture()),
    "bisenet_v2": lambda: (Bilateral(), picture()),
    "ddr_net": lambda: (TwoPaths(), picture()),
    "hrnet_ocr": lambda: (Exchange(objects=True), picture()),
    "seg_next": lambda: (Strided(), picture()),
    "u2_net": lambda: (Residuals(), picture()),
    "matting": lambda: (Matte(), (torch.rand(1, 3, 256, 256), torch.randn(1, 16, 32, 32))),
}

ONE_FORM = {"psp_net": "dynamo18"}
"""The one that torch-script does not export."""

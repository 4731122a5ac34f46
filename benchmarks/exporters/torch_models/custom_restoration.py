"""Networks that restore and enlarge images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[Tensor, ...]]


def c3(a: int, b: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(a, b, 3, stride, dilation, dilation)


def leaky(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, 0.1)


class Distilled(nn.Module):
    """IMDN: a part of each convolution is kept, the rest goes on; contrast (deviation and mean) makes the gate."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.kept = width // 4
        self.head = c3(3, width)
        self.blocks = nn.ModuleList(self._block(width) for _ in range(3))
        self.joined, self.last = nn.Conv2d(3 * width, width, 1), c3(width, width)
        self.up = nn.Sequential(c3(width, 48), nn.PixelShuffle(4))

    def _block(self, width: int) -> nn.ModuleList:
        rest = width - self.kept
        gate = nn.Sequential(
            nn.Conv2d(width, width // 16, 1), nn.ReLU(), nn.Conv2d(width // 16, width, 1), nn.Sigmoid()
        )
        return nn.ModuleList(
            (c3(width, width), c3(rest, width), c3(rest, width), c3(rest, self.kept), nn.Conv2d(width, width, 1), gate)
        )

    def forward(self, image: Tensor) -> Tensor:
        first = x = self.head(image)
        found = []
        for a, b, c, d, last, gate in self.blocks:
            parts, y = [], x
            for layer in (a, b, c):
                kept, y = leaky(layer(y)).split((self.kept, x.shape[1] - self.kept), 1)
                parts.append(kept)
            y = torch.cat([*parts, d(y)], 1)
            mean = y.mean((2, 3), True)
            contrast = (y - mean).pow(2).mean((2, 3), True).sqrt() + mean
            x = last(y * gate(contrast)) + x
            found.append(x)
        return self.up(self.last(leaky(self.joined(torch.cat(found, 1)))) + first)


class Features(nn.Module):
    """RFDN: shallow residuals beside kept channels, and ESA: a gate of a strided, pooled and grown map."""

    def __init__(self, width: int = 50) -> None:
        super().__init__()
        kept, less = width // 2, 12
        self.head = c3(3, width)
        self.keep = nn.ModuleList(nn.Conv2d(width, kept, 1) for _ in range(3))
        self.residual = nn.ModuleList(c3(width, width) for _ in range(3))
        self.fourth, self.joined = c3(width, kept), nn.Conv2d(4 * kept, width, 1)
        self.e1, self.ef, self.e4 = nn.Conv2d(width, less, 1), nn.Conv2d(less, less, 1), nn.Conv2d(less, width, 1)
        self.e2, self.em, self.e3, self.e3b = (
            nn.Conv2d(less, less, 3, 2),
            c3(less, less),
            c3(less, less),
            c3(less, less),
        )
        self.up = nn.Sequential(c3(width, 48), nn.PixelShuffle(4))

    def forward(self, image: Tensor) -> Tensor:
        x = first = self.head(image)
        parts = []
        for keep, residual in zip(self.keep, self.residual, strict=True):
            parts.append(functional.leaky_relu(keep(x), 0.05))
            x = functional.leaky_relu(residual(x) + x, 0.05)
        y = self.joined(torch.cat([*parts, functional.leaky_relu(self.fourth(x), 0.05)], 1))
        e = self.e1(y)
        small = functional.max_pool2d(self.e2(e), 7, 3)
        small = self.e3b(functional.relu(self.e3(functional.relu(self.em(small)))))
        gate = self.e4(
            functional.interpolate(small, size=y.shape[2:], mode="bilinear", align_corners=False) + self.ef(e)
        )
        return self.up(y * gate.sigmoid() + first)


class Pixels(nn.Module):
    """PAN for enlarging: gates of each pixel and channel by a 1x1; nearest pixels, and a bilinear image beside."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        half = width // 2
        self.head = c3(3, width)
        self.a, self.b = nn.Conv2d(width, half, 1, bias=False), nn.Conv2d(width, half, 1, bias=False)
        self.a1, self.k2, self.k3, self.k4 = c3(half, half), nn.Conv2d(half, half, 1), c3(half, half), c3(half, half)
        self.last = nn.Conv2d(width, width, 1, bias=False)
        self.up1, self.att, self.hr, self.out = c3(width, 24), nn.Conv2d(24, 24, 1), c3(24, 24), c3(24, 3)

    def forward(self, image: Tensor) -> Tensor:
        x = self.head(image)
        for _ in range(2):
            a, b = leaky(self.a(x)), leaky(self.b(x))
            b = self.k4(self.k3(b) * self.k2(b).sigmoid())
            x = x + self.last(torch.cat((leaky(self.a1(a)), leaky(b)), 1))
        x = self.up1(functional.interpolate(x, scale_factor=2, mode="nearest"))
        x = leaky(self.hr(leaky(x * self.att(x).sigmoid())))
        return self.out(x) + functional.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)


class Blueprint(nn.Module):
    """BSRN: 1x1 and depthwise windows in place of others, GELU, and layers of both kinds of gates."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()

        def bs(a: int, b: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(a, b, 1, bias=False), nn.Conv2d(b, b, 3, padding=1, groups=b))

        self.head, self.keep = bs(12, width), nn.ModuleList(nn.Conv2d(width, width // 2, 1) for _ in range(3))
        self.residual, self.fourth = nn.ModuleList(bs(width, width) for _ in range(3)), bs(width, width // 2)
        self.joined, self.last = nn.Conv2d(2 * width, width, 1), bs(width, width)
        self.up = nn.Sequential(c3(width, 48), nn.PixelShuffle(4))

    def forward(self, image: Tensor) -> Tensor:
        first = x = self.head(torch.cat([image] * 4, 1))
        for _ in range(2):
            parts, y = [], x
            for keep, residual in zip(self.keep, self.residual, strict=True):
                parts.append(functional.gelu(keep(y)))
                y = functional.gelu(residual(y) + y)
            y = self.joined(torch.cat([*parts, functional.gelu(self.fourth(y))], 1))
            mean = y.mean((2, 3), True)
            x = y * ((y - mean).pow(2).mean((2, 3), True).sqrt() + mean).sigmoid() + x
        return self.up(self.last(functional.gelu(x)) + first)


class LayerNorm2d(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, True)
        var = (x - mean).pow(2).mean(1, True)
        return self.weight.view(1, -1, 1, 1) * ((x - mean) / (var + 1e-6).sqrt()) + self.bias.view(1, -1, 1, 1)


class NafBlock(nn.Module):
    """NAFNet: halves multiply each other, and a mean through a 1x1 gates without an activation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.n1, self.n2 = LayerNorm2d(width), LayerNorm2d(width)
        self.c1, self.c2, self.c3 = (
            nn.Conv2d(width, 2 * width, 1),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width),
            nn.Conv2d(width, width, 1),
        )
        self.sca = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1))
        self.c4, self.c5 = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(width, width, 1)
        self.beta, self.gamma = nn.Parameter(torch.zeros(1, width, 1, 1)), nn.Parameter(torch.zeros(1, width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.c2(self.c1(self.n1(x))).chunk(2, 1)
        y = a * b
        y = x + self.c3(y * self.sca(y)) * self.beta
        a, b = self.c4(self.n2(y)).chunk(2, 1)
        return y + self.c5(a * b) * self.gamma


class Naf(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.head, self.tail = c3(3, width), c3(width, 3)
        self.e = nn.ModuleList(NafBlock(width * 2**i) for i in range(3))
        self.down = nn.ModuleList(nn.Conv2d(width * 2**i, 2 * width * 2**i, 2, 2) for i in range(2))
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * width * 2**i, 4 * width * 2**i, 1, bias=False), nn.PixelShuffle(2))
            for i in range(2)
        )
        self.d = nn.ModuleList(NafBlock(width * 2**i) for i in range(2))

    def forward(self, image: Tensor) -> Tensor:
        x = self.e[0](self.head(image))
        y = self.e[1](self.down[0](x))
        z = self.e[2](self.down[1](y))
        y = self.d[1](self.up[1](z) + y)
        x = self.d[0](self.up[0](y) + x)
        return self.tail(x) + image


def windows(x: Tensor, size: int) -> Tensor:
    b, h, w, c = x.shape
    return x.view(b, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)


def unwindowed(x: Tensor, size: int, h: int, w: int) -> Tensor:
    x = x.view(-1, h // size, w // size, size, size, x.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, h, w, x.shape[-1])


class WindowBlock(nn.Module):
    """Attention in shifted windows with a table of relative positions; `leff`: a depthwise window in the perceptron;
    `channels`: HAT's convolutions with squeeze and excitation beside the attention."""

    def __init__(
        self, width: int, heads: int, size: int, shift: int, leff: bool = False, channels: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.size, self.shift, self.leff = heads, size, shift, leff
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * size - 1) ** 2, heads) * 0.02)
        at = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None] + size - 1
        self.register_buffer("index", apart[0] * (2 * size - 1) + apart[1])
        self.f1, self.f2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.window = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width) if leff else None
        self.cab = nn.Sequential(c3(width, width // 3), nn.GELU(), c3(width // 3, width)) if channels else None
        self.gate = (
            nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(width, width // 30, 1),
                nn.ReLU(),
                nn.Conv2d(width // 30, width, 1),
                nn.Sigmoid(),
            )
            if channels
            else None
        )

    def _mask(self, h: int, w: int) -> Tensor:
        regions = torch.zeros(1, h, w, 1)
        cuts = (slice(0, -self.size), slice(-self.size, -self.shift), slice(-self.shift, None))
        for i, a in enumerate(cuts):
            for j, b in enumerate(cuts):
                regions[:, a, b] = 3 * i + j
        found = windows(regions, self.size).squeeze(-1)
        return torch.where(found[:, None] == found[:, :, None], 0.0, -100.0)

    def forward(self, x: Tensor, h: int, w: int) -> Tensor:
        b, _, c = x.shape
        y = normed = self.n1(x).view(b, h, w, c)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = windows(y, self.size)
        n = self.size**2
        q, k, v = self.qkv(y).view(-1, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + self.table[self.index.view(-1)].view(
            n, n, -1
        ).permute(2, 0, 1)[None]
        if self.shift:
            mask = self._mask(h, w)
            scores = (scores.view(-1, mask.shape[0], self.heads, n, n) + mask[None, :, None]).view(-1, self.heads, n, n)
        y = unwindowed(self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n, c)), self.size, h, w)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y.reshape(b, h * w, c)
        if self.cab is not None:
            found = self.cab(normed.permute(0, 3, 1, 2))
            x = x + 0.01 * (found * self.gate(found)).permute(0, 2, 3, 1).reshape(b, h * w, c)
        y = functional.gelu(self.f1(self.n2(x)))
        if self.window is not None:
            y = functional.gelu(self.window(y.transpose(1, 2).reshape(b, -1, h, w))).flatten(2).transpose(1, 2)
        return x + self.f2(y)


class Windowed(nn.Module):
    """SwinIR and HAT: blocks of attention in windows with a convolution behind them, around a residual."""

    def __init__(self, width: int = 60, heads: int = 6, channels: bool = False) -> None:
        super().__init__()
        self.head = c3(3, width)
        self.blocks = nn.ModuleList(WindowBlock(width, heads, 8, 4 * (i % 2), channels=channels) for i in range(4))
        self.convs = nn.ModuleList(c3(width, width) for _ in range(2))
        self.norm, self.body = nn.LayerNorm(width), c3(width, width)
        self.up = nn.Sequential(c3(width, 64), nn.LeakyReLU(), c3(64, 256), nn.PixelShuffle(2), c3(64, 3))

    def forward(self, image: Tensor) -> Tensor:
        first = self.head(image)
        b, c, h, w = first.shape
        x = first.flatten(2).transpose(1, 2)
        for i, conv in enumerate(self.convs):
            y = x
            for block in self.blocks[2 * i : 2 * i + 2]:
                y = block(y, h, w)
            x = x + conv(y.transpose(1, 2).view(b, c, h, w)).flatten(2).transpose(1, 2)
        return self.up(self.body(self.norm(x).transpose(1, 2).view(b, c, h, w)) + first)


class Denoised(nn.Module):
    """DnCNN and FFDNet: pixels to channels beside a map of the noise, BatchNorm, the noise taken off."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(
            c3(5, width),
            nn.ReLU(),
            *(
                each
                for _ in range(4)
                for each in (nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
            ),
            c3(width, 4),
        )

    def forward(self, image: Tensor, sigma: Tensor) -> Tensor:
        x = functional.pixel_unshuffle(image, 2)
        noise = sigma.view(-1, 1, 1, 1).repeat(1, 1, x.shape[2], x.shape[3])
        x = self.net(torch.cat((x, noise), 1))
        return image - functional.pixel_shuffle(x, 2)


class Predicted(nn.Module):
    """KPN: 25 weights of each pixel, which its neighbours are multiplied with; curves as Zero-DCE's behind."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.net = nn.Sequential(c3(3, width), nn.ReLU(), c3(width, width), nn.ReLU(), c3(width, 25))
        self.curves = nn.Sequential(c3(3, width), nn.ReLU(), c3(width, 24), nn.Tanh())

    def forward(self, image: Tensor) -> Tensor:
        weights = self.net(image).softmax(1)
        padded = functional.pad(image, (2, 2, 2, 2), mode="replicate")
        h, w = image.shape[2:]
        seen = torch.stack([padded[:, :, i : i + h, j : j + w] for i in range(5) for j in range(5)], 1)
        x = (weights.unsqueeze(2) * seen).sum(1)
        for curve in self.curves(x).split(3, 1):
            x = x + curve * (x.pow(2) - x)
        return x


MODULES: dict[str, Callable[[], Made]] = {
    "imdn": lambda: (Distilled(), (torch.rand(1, 3, 96, 96),)),
    "rfdn": lambda: (Features(), (torch.rand(1, 3, 96, 96),)),
    "pixel_attention": lambda: (Pixels(), (torch.rand(1, 3, 96, 96),)),
    "bsrn": lambda: (Blueprint(), (torch.rand(1, 3, 96, 96),)),
    "naf_net": lambda: (Naf(), (torch.rand(1, 3, 128, 128),)),
    "hat": lambda: (Windowed(channels=True), (torch.rand(1, 3, 64, 64),)),
    "ffd_net": lambda: (Denoised(), (torch.rand(1, 1, 128, 128), torch.rand(1))),
    "kpn": lambda: (Predicted(), (torch.rand(1, 3, 96, 96),)),
}

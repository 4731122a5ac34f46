"""Other convolutions than the usual, each in a small backbone: filters that are data, large and moved windows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exporters.torch_models.custom_backbones import Backbone, Bottleneck, conv

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Involution(nn.Module):
    """RedNet: a window of each group and place, from the pixel that lies there."""

    def __init__(self, width: int, window: int = 7) -> None:
        super().__init__()
        self.window, self.groups = window, width // 16
        self.reduce, self.span = (
            conv(width, width // 4, 1, 1, nn.ReLU()),
            nn.Conv2d(width // 4, window**2 * self.groups, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, width, rows, columns = x.shape
        weight = self.span(self.reduce(x)).view(batch, self.groups, self.window**2, rows, columns).unsqueeze(2)
        seen = functional.unfold(x, self.window, padding=self.window // 2).view(
            batch, self.groups, width // self.groups, self.window**2, rows, columns
        )
        return (weight * seen).sum(3).view(batch, width, rows, columns)


class Kernels(nn.Module):
    """Dynamic convolution: four sets of filters, mixed by a softmax for each image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, width, width // 4, 3, 3) * (9 * width / 4) ** -0.5)
        self.mix = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, width // 4, 1),
            nn.ReLU(),
            nn.Conv2d(width // 4, 4, 1),
            nn.Flatten(),
        )
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, width, rows, columns = x.shape
        mixed = (self.mix(x) / 4).softmax(1) @ self.weight.view(4, -1)
        found = functional.conv2d(
            x.reshape(1, batch * width, rows, columns),
            mixed.view(batch * width, width // 4, 3, 3),
            padding=1,
            groups=4 * batch,
        )
        return self.norm(found.view(batch, width, rows, columns))


class Omni(nn.Module):
    """ODConv with one set: gates of inputs, filters and positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        less = max(16, width // 16)
        self.first = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(width, less, 1, 1, nn.ReLU()))
        self.inputs, self.filters, self.positions = (nn.Conv2d(less, n, 1) for n in (width, width, 9))
        self.weight = nn.Parameter(torch.randn(width, width, 3, 3) * (9 * width) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        batch, width, rows, columns = x.shape
        known = self.first(x)
        x = (x * self.inputs(known).sigmoid()).reshape(1, -1, rows, columns)
        weight = self.positions(known).view(batch, 1, 1, 3, 3).sigmoid() * self.weight[None]
        found = functional.conv2d(x, weight.view(-1, width, 3, 3), padding=1, groups=batch)
        return found.view(batch, width, rows, columns) * self.filters(known).sigmoid()


class Deformed(nn.Module):
    """Deformable convolution of the second version in plain torch: nine samples of each place, each with a mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.offsets = nn.Conv2d(width, 27, 3, padding=1)
        self.last = nn.Conv2d(9 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, _width, rows, columns = x.shape
        found = self.offsets(x)
        moves, mask = found[:, :18].view(batch, 9, 2, rows, columns), found[:, 18:].sigmoid()
        ys, xs = torch.meshgrid(torch.arange(rows).float(), torch.arange(columns).float(), indexing="ij")
        seen = []
        for tap in range(9):
            x_at, y_at = xs + tap % 3 - 1 + moves[:, tap, 0], ys + tap // 3 - 1 + moves[:, tap, 1]
            grid = torch.stack((2 * x_at / (columns - 1) - 1, 2 * y_at / (rows - 1) - 1), -1)
            seen.append(functional.grid_sample(x, grid, align_corners=True) * mask[:, tap : tap + 1])
        return self.last(torch.cat(seen, 1))


class DeformedOp(nn.Module):
    """The same by torchvision's operator."""

    def __init__(self, width: int) -> None:
        super().__init__()
        from torchvision.ops import DeformConv2d

        self.offsets, self.conv = nn.Conv2d(width, 27, 3, padding=1), DeformConv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.offsets(x)
        return self.conv(x, found[:, :18], found[:, 18:].sigmoid())


class Octave(nn.Module):
    """Octave convolution: a quarter of the channels at half the size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        low = width // 4
        high = width - low
        self.low = low
        self.hh, self.hl, self.lh, self.ll = (
            nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in ((high, high), (high, low), (low, high), (low, low))
        )
        self.high_norm, self.low_norm = nn.BatchNorm2d(high), nn.BatchNorm2d(low)

    def forward(self, x: Tensor) -> Tensor:
        high, low = x[:, self.low :], functional.avg_pool2d(x[:, : self.low], 2)
        a = self.hh(high) + functional.interpolate(self.lh(low), scale_factor=2, mode="nearest")
        b = self.ll(low) + self.hl(functional.avg_pool2d(high, 2))
        a, b = functional.relu(self.high_norm(a)), functional.relu(self.low_norm(b))
        return torch.cat((functional.interpolate(b, scale_factor=2), a), 1)


class Large(nn.Module):
    """RepLKNet and SLaK: depthwise windows of `windows` beside each other, between 1x1 convolutions."""

    def __init__(self, width: int, windows: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.first, self.last = conv(width, width, 1, 1, nn.ReLU()), conv(width, width)
        self.windows = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, k, padding=(k[0] // 2, k[1] // 2), groups=width, bias=False),
                nn.BatchNorm2d(width),
            )
            for k in windows
        )
        self.mlp = nn.Sequential(nn.BatchNorm2d(width), conv(width, 4 * width, 1, 1, nn.GELU()), conv(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        x = x + self.last(functional.relu(sum((each(y) for each in self.windows[1:]), self.windows[0](y))))
        return x + self.mlp(x)


class Kernelled(nn.Module):
    """VAN: a gate from depthwise windows of 5 and of 7 with dilation 3."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.first, self.last, self.mixed = (nn.Conv2d(width, width, 1) for _ in range(3))
        self.near, self.far = (
            nn.Conv2d(width, width, 5, padding=2, groups=width),
            nn.Conv2d(width, width, 7, padding=9, dilation=3, groups=width),
        )
        self.mlp = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width),
            nn.GELU(),
            nn.Conv2d(4 * width, width, 1),
        )
        self.scales = nn.ParameterList(nn.Parameter(1e-2 * torch.ones(width)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        u = functional.gelu(self.first(y))
        y = self.last(u * self.mixed(self.far(self.near(u)))) + y
        x = x + self.scales[0][:, None, None] * y
        return x + self.scales[1][:, None, None] * self.mlp(self.norms[1](x))


class Recursive(nn.Module):
    """HorNet: gated convolutions of growing widths."""

    def __init__(self, width: int, order: int = 4) -> None:
        super().__init__()
        self.widths = [width // 2**i for i in range(order)][::-1]
        self.first = nn.Conv2d(width, 2 * width, 1)
        self.window = nn.Conv2d(sum(self.widths), sum(self.widths), 7, padding=3, groups=sum(self.widths))
        self.steps = nn.ModuleList(nn.Conv2d(a, b, 1) for a, b in zip(self.widths, self.widths[1:], strict=False))
        self.last = nn.Conv2d(width, width, 1)
        self.norm = nn.GroupNorm(1, width)

    def forward(self, x: Tensor) -> Tensor:
        gate, rest = self.first(self.norm(x)).split((self.widths[0], sum(self.widths)), 1)
        parts = (self.window(rest) * 0.33).split(self.widths, 1)
        y = gate * parts[0]
        for step, part in zip(self.steps, parts[1:], strict=True):
            y = step(y) * part
        return x + self.last(y)


class Moved(nn.Module):
    """ShiftNet and AS-MLP: parts of the channels move by a pixel, between 1x1 convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = conv(width, width, 1, 1, nn.ReLU()), conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        a, b, c, d, e = y.chunk(5, 1) if y.shape[1] % 5 == 0 else y.split([y.shape[1] // 8] * 4 + [y.shape[1] // 2], 1)
        pad = functional.pad
        a, b = pad(a[:, :, 1:], (0, 0, 0, 1)), pad(b[:, :, :-1], (0, 0, 1, 0))
        c, d = pad(c[:, :, :, 1:], (0, 1)), pad(d[:, :, :, :-1], (1, 0))
        return functional.relu(x + self.last(torch.cat((a, b, c, d, e), 1)))


class Activated(nn.Module):
    """FReLU, DyReLU, ACON or Mish behind convolutions."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind, self.first, self.last = kind, conv(width, width, 3), conv(width, width, 3)
        if kind == "frelu":
            self.funnel = conv(width, width, 3, groups=width)
        if kind == "dyrelu":
            self.mlp = nn.Sequential(
                nn.Linear(width, width // 4), nn.ReLU(), nn.Linear(width // 4, 4 * width), nn.Sigmoid()
            )
        if kind == "acon":
            self.p1, self.p2 = nn.Parameter(torch.randn(1, width, 1, 1)), nn.Parameter(torch.randn(1, width, 1, 1))
            self.beta = nn.Sequential(nn.Conv2d(width, 16, 1), nn.Conv2d(16, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.kind == "frelu":
            y = torch.maximum(y, self.funnel(y))
        elif self.kind == "dyrelu":
            both = (2 * self.mlp(y.mean((2, 3))) - 1).view(y.shape[0], y.shape[1], 4, 1, 1).unbind(2)
            y = torch.maximum(y * (1 + both[0]) + 0.5 * both[1], y * both[2] + 0.5 * both[3])
        elif self.kind == "acon":
            beta = self.beta(y.mean((2, 3), True)).sigmoid()
            part = (self.p1 - self.p2) * y
            y = part * torch.sigmoid(beta * part) + self.p2 * y
        else:
            y = functional.mish(y)
        return x + self.last(y)


class StyleLayer(nn.Module):
    """Filters that an image's style scales and normalises, as groups of one convolution."""

    def __init__(self, a: int, b: int, window: int, style: int, normed: bool = True) -> None:
        super().__init__()
        self.style, self.normed, self.window = nn.Linear(style, a), normed, window
        self.weight = nn.Parameter(torch.randn(1, b, a, window, window) * (a * window**2) ** -0.5)

    def forward(self, image: Tensor, style: Tensor) -> Tensor:
        batch, width, rows, columns = image.shape
        weight = self.weight * (self.style(style).view(batch, 1, width, 1, 1) + 1)
        if self.normed:
            weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8).view(batch, -1, 1, 1, 1)
        filters = weight.view(-1, width, self.window, self.window)
        found = functional.conv2d(
            image.view(1, batch * width, rows, columns), filters, padding=self.window // 2, groups=batch
        )
        return found.view(batch, -1, rows, columns)


class Styles(nn.Module):
    """StyleGAN2 and GFPGAN: styles of every layer, noise, features that scale and shift half of the channels, images of
    every size added up."""

    def __init__(self, width: int = 128, style: int = 256) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, width, 8, 8))
        widths = (width, width, width // 2, width // 2)
        self.a = nn.ModuleList(StyleLayer(x, y, 3, style) for x, y in zip((width, *widths), widths, strict=False))
        self.b = nn.ModuleList(StyleLayer(x, x, 3, style) for x in widths)
        self.rgb = nn.ModuleList(StyleLayer(x, 3, 1, style, False) for x in widths)
        self.map = nn.Sequential(nn.Linear(style, style), nn.LeakyReLU(0.2), nn.Linear(style, style), nn.LeakyReLU(0.2))
        self.noise = nn.ParameterList(nn.Parameter(torch.randn(1, 1, 16 * 2**i, 16 * 2**i)) for i in range(4))
        self.bias = nn.ParameterList(nn.Parameter(torch.randn(x, 1, 1)) for x in widths)
        self.spatial = nn.ModuleList(nn.Conv2d(3, x, 3, padding=1) for x in widths)

    def forward(self, latent: Tensor, condition: Tensor) -> Tensor:
        style = self.map(latent / (latent.pow(2).mean(1, True) + 1e-8).sqrt())
        x, image = self.start.repeat(latent.shape[0], 1, 1, 1), None
        for i, (a, b, rgb) in enumerate(zip(self.a, self.b, self.rgb, strict=True)):
            x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = functional.leaky_relu(a(x, style) + self.noise[i] + self.bias[i], 0.2) * 2**0.5
            seen = self.spatial[i](
                functional.interpolate(condition, size=x.shape[2:], mode="bilinear", align_corners=False)
            )
            same, changed = x.chunk(2, 1)
            scale, shift = seen.chunk(2, 1)
            x = torch.cat((same, changed * scale + shift), 1)
            x = functional.leaky_relu(b(x, style) + self.bias[i], 0.2) * 2**0.5
            found = rgb(x, style)
            image = (
                found
                if image is None
                else found + functional.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)
            )
        return image


def attended(attention: Callable[[int], nn.Module]) -> Made:
    return Backbone(lambda width: Bottleneck(width, attention)), (torch.randn(1, 3, 96, 96),)


def made_of(block: Callable[[int], nn.Module]) -> Made:
    return Backbone(block), (torch.randn(1, 3, 96, 96),)


MODULES: dict[str, Callable[[], Made]] = {
    "involution": lambda: attended(Involution),
    "dynamic_conv": lambda: attended(Kernels),
    "od_conv": lambda: attended(Omni),
    "deformed": lambda: attended(Deformed),
    "deform_conv": lambda: attended(DeformedOp),
    "octave": lambda: made_of(Octave),
    "slak": lambda: made_of(lambda width: Large(width, ((51, 5), (5, 51), (5, 5)))),
    "van": lambda: made_of(Kernelled),
    "hor_net": lambda: made_of(Recursive),
    "shift_net": lambda: made_of(Moved),
    "dyrelu": lambda: made_of(lambda width: Activated(width, "dyrelu")),
    "acon": lambda: made_of(lambda width: Activated(width, "acon")),
    "gfp_gan": lambda: (Styles(), (torch.randn(1, 256), torch.randn(1, 3, 64, 64))),
}

ONE_FORM = {"deform_conv": "dynamo23", "gfp_gan": "dynamo18"}
"""Those that torch-script does not export."""

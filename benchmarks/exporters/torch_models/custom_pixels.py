"""Networks whose filters, gates and divisors are data: of each image, of each pixel; and maps of one channel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exporters.torch_models.custom_backbones import conv

Made = tuple[nn.Module, tuple[Tensor, ...]]


def picture(size: int = 128) -> tuple[Tensor, ...]:
    return (torch.rand(1, 3, size, size),)


class Divided(nn.Module):
    """Generalised divisive normalisation: each channel over the root of a mix of all squares; or times it."""

    def __init__(self, width: int, *, inverse: bool = False) -> None:
        super().__init__()
        self.beta, self.gamma = nn.Parameter(1 + torch.rand(width)), nn.Parameter(0.1 * torch.rand(width, width))
        self.inverse = inverse

    def forward(self, x: Tensor) -> Tensor:
        mixed = functional.conv2d(x * x, self.gamma[:, :, None, None], self.beta)
        return x * (torch.sqrt(mixed) if self.inverse else torch.rsqrt(mixed))


class Hyperprior(nn.Module):
    """Learned compression with a scale hyperprior (Minnen): what an encoder leaves, rounded, and its decoder."""

    def __init__(self, width: int = 64, latent: int = 96) -> None:
        super().__init__()

        def down(a: int, b: int) -> nn.Conv2d:
            return nn.Conv2d(a, b, 5, 2, 2)

        def up(a: int, b: int) -> nn.ConvTranspose2d:
            return nn.ConvTranspose2d(a, b, 5, 2, 2, 1)

        self.encoder = nn.Sequential(
            down(3, width), Divided(width), down(width, width), Divided(width), down(width, latent)
        )
        self.inner = nn.Sequential(nn.Conv2d(latent, width, 3, 1, 1), nn.ReLU(), down(width, width))
        self.outer = nn.Sequential(up(width, width), nn.ReLU(), nn.Conv2d(width, 2 * latent, 3, 1, 1))
        self.decoder = nn.Sequential(
            up(latent, width), Divided(width, inverse=True), up(width, width), Divided(width, inverse=True),
            up(width, 3),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        latent = self.encoder(x)
        scales, means = self.outer(torch.round(self.inner(torch.abs(latent)))).chunk(2, 1)
        return self.decoder(torch.round(latent - means) + means).clamp(0, 1), scales


class MixedDepthwise(nn.Module):
    """CondConv: an image mixes the filters of its depthwise convolution of a few experts'."""

    def __init__(self, width: int, window: int = 3, experts: int = 4) -> None:
        super().__init__()
        self.route = nn.Linear(width, experts)
        self.experts = nn.Parameter(0.2 * torch.randn(experts, width * window**2))
        self.norm, self.window = nn.BatchNorm2d(width), window

    def forward(self, x: Tensor) -> Tensor:
        images, channels, height, width = x.shape
        filters = torch.sigmoid(self.route(x.mean((2, 3)))) @ self.experts
        filters = filters.view(images * channels, 1, self.window, self.window)
        grouped = x.reshape(1, images * channels, height, width)
        made = functional.conv2d(grouped, filters, None, 1, self.window // 2, 1, images * channels)
        return functional.silu(self.norm(made.view(x.shape)))


class OfPixels(nn.Module):
    """LSNet: a large window says for each pixel with which small filters to sum up around it, shared by channels in
    turns."""

    def __init__(self, width: int, groups: int = 8, window: int = 3) -> None:
        super().__init__()
        half, taps = width // 2, window**2
        self.see = nn.Sequential(conv(width, half, act=nn.ReLU()), conv(half, half, 7, groups=half), conv(half, half))
        self.filters = nn.Conv2d(half, taps * width // groups, 1)
        self.groups, self.window, self.norm = groups, window, nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        images, channels, height, width = x.shape
        own, taps = channels // self.groups, self.window**2
        filters = self.filters(self.see(x)).view(images, 1, own, taps, height, width)
        around = functional.unfold(x, self.window, padding=self.window // 2)
        around = around.view(images, self.groups, own, taps, height, width)
        return x + self.norm((around * filters).sum(3).view(x.shape))


class Predicted(nn.Module):
    """Kernel prediction networks denoise with a filter of 5x5 for each pixel, whose elements add up to 1."""

    def __init__(self, width: int = 32, window: int = 5) -> None:
        super().__init__()
        self.trunk = nn.Sequential(conv(3, width, 3, act=nn.ReLU()), conv(width, width, 3, act=nn.ReLU()))
        self.filters, self.window = nn.Conv2d(width, window**2, 3, padding=1), window

    def forward(self, x: Tensor) -> Tensor:
        images, colours, height, width = x.shape
        filters = self.filters(self.trunk(x)).softmax(1).unsqueeze(1)
        around = functional.unfold(x, self.window, padding=self.window // 2)
        return (around.view(images, colours, self.window**2, height, width) * filters).sum(2)


class Partial(nn.Module):
    """A partial convolution: windows are divided by how much of them the mask has, and fill holes of the mask."""

    def __init__(self, width: int, filters: int, window: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, filters, window, stride, window // 2)
        self.register_buffer("ones", torch.ones(1, 1, window, window))
        self.stride, self.window = stride, window

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        seen = functional.conv2d(mask, self.ones, None, self.stride, self.window // 2)
        filled = seen.clamp(0, 1)
        ratio = self.window**2 / (seen + 1e-8) * filled
        bias = self.conv.bias.view(1, -1, 1, 1)
        return torch.relu(((self.conv(x * mask) - bias) * ratio + bias) * filled), filled


class Filled(nn.Module):
    """Inpainting by partial convolutions: a U-Net of images and masks."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.second = Partial(3, width, 7, 2), Partial(width, 2 * width, 5, 2)
        self.third, self.last = Partial(3 * width, width), Partial(width + 3, width)
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        def larger(each: Tensor) -> Tensor:
            return functional.interpolate(each, scale_factor=2, mode="nearest")

        one, one_mask = self.first(x, mask)
        two, two_mask = self.second(one, one_mask)
        three, three_mask = self.third(torch.cat((larger(two), one), 1), torch.maximum(larger(two_mask), one_mask))
        made, _ = self.last(torch.cat((larger(three), x), 1), torch.maximum(larger(three_mask), mask))
        return self.head(made)


class Joined(nn.Module):
    """FractalNet: where columns meet they are stacked, and the mean of the stack goes on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv(width, width, 3, act=nn.ReLU()) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d, e = self.layers
        met = torch.stack((a(x), c(b(x)))).mean(0)
        return torch.stack((d(met), e(x))).mean(0)


class Rectified(nn.Module):
    """Dynamic ReLU: the larger of two lines a channel, which the image's mean makes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lines = nn.Sequential(nn.Linear(width, width // 4), nn.ReLU(), nn.Linear(width // 4, 4 * width))
        self.register_buffer("scale", torch.tensor((1.0, 1.0, 0.5, 0.5)))
        self.register_buffer("usual", torch.tensor((1.0, 0.0, 0.0, 0.0)))

    def forward(self, x: Tensor) -> Tensor:
        lines = (2 * torch.sigmoid(self.lines(x.mean((2, 3)))) - 1).view(-1, x.shape[1], 4) * self.scale + self.usual
        made = x.permute(2, 3, 0, 1).unsqueeze(-1) * lines[:, :, :2] + lines[:, :, 2:]
        return made.max(-1)[0].permute(2, 3, 0, 1)


class Curves(nn.Module):
    """Zero-DCE: light-enhancing curves, eight of each pixel and colour, one applied to what the other left."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = ((3, width), (width, width), (width, width), (width, width), (2 * width, width), (2 * width, width))
        self.layers = nn.ModuleList(conv(a, b, 3, act=nn.ReLU()) for a, b in widths)
        self.curves = nn.Conv2d(2 * width, 24, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        one, two, three, four, five, six = self.layers
        a = one(x)
        b = two(a)
        c = three(b)
        e = six(torch.cat((b, five(torch.cat((c, four(c)), 1))), 1))
        for curve in torch.tanh(self.curves(torch.cat((a, e), 1))).split(3, 1):
            x = x + curve * (x * x - x)
        return x


class Reflected(nn.Module):
    """Monodepth2's decoder: reflected borders, ELU, larger images beside an encoder's."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        self.trunk = nn.ModuleList(conv(a, b, 3, 2, act=nn.ReLU()) for a, b in zip((3, *widths), widths, strict=False))
        pairs = list(zip(widths[::-1], (*widths[-2::-1], widths[0]), strict=True))
        self.first = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, padding_mode="reflect") for a, b in pairs)
        beside = (*widths[-2::-1], 0)
        self.second = nn.ModuleList(
            nn.Conv2d(b + more, b, 3, padding=1, padding_mode="reflect")
            for (_, b), more in zip(pairs, beside, strict=True)
        )
        self.depths = nn.ModuleList(nn.Conv2d(b, 1, 3, padding=1, padding_mode="reflect") for _, b in pairs)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        kept, found = [], []
        for layer in self.trunk:
            x = layer(x)
            kept.append(x)
        for index, (first, second, depth) in enumerate(zip(self.first, self.second, self.depths, strict=True)):
            x = functional.interpolate(functional.elu(first(x)), scale_factor=2, mode="nearest")
            if index + 1 < len(kept):
                x = torch.cat((x, kept[-2 - index]), 1)
            x = functional.elu(second(x))
            found.append(torch.sigmoid(depth(x)))
        return tuple(found)


def _slopes() -> nn.Sequential:
    """FSRCNN: 12 channels between 56, with a slope a channel, and one transposed window at the end."""
    inner = (layer for _ in range(4) for layer in (nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)))
    return nn.Sequential(
        nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56), nn.Conv2d(56, 12, 1), nn.PReLU(12), *inner,
        nn.Conv2d(12, 56, 1), nn.PReLU(56), nn.ConvTranspose2d(56, 1, 9, 4, 4, 3),
    )  # fmt: skip


def _spoof() -> nn.Sequential:
    """AASIST's first layers: odd windows and SELU over spectrograms of raw sound."""
    return nn.Sequential(
        nn.Conv2d(1, 32, (2, 3), padding=(1, 1)), nn.SELU(), nn.Conv2d(32, 32, (2, 3), padding=(0, 1)),
        nn.MaxPool2d((1, 3)), nn.Conv2d(32, 64, (2, 3), padding=(1, 1)), nn.SELU(), nn.MaxPool2d((1, 3)),
    )  # fmt: skip


def _behind(width: int, *layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(conv(3, width, 3, 4, act=nn.ReLU()), *layers)


MODULES: dict[str, Callable[[], Made]] = {
    "hyperprior": lambda: (Hyperprior(), picture()),
    "cond_conv_depthwise": lambda: (_behind(48, MixedDepthwise(48), MixedDepthwise(48, 5)), picture()),
    "ls_net": lambda: (_behind(64, OfPixels(64), OfPixels(64)), picture()),
    "kernel_prediction": lambda: (Predicted(), picture(64)),
    "partial_conv": lambda: (Filled(), (*picture(64), (torch.rand(1, 1, 64, 64) > 0.3).float())),
    "fractal_net": lambda: (_behind(32, Joined(32), nn.MaxPool2d(2), Joined(32)), picture()),
    "dynamic_relu": lambda: (_behind(32, Rectified(32), conv(32, 32, 3), Rectified(32)), picture()),
    "zero_dce": lambda: (Curves(), picture(64)),
    "mono_depth": lambda: (Reflected(), picture()),
    "fsrcnn": lambda: (_slopes(), (torch.rand(1, 1, 48, 48),)),
    "aasist": lambda: (_spoof(), (torch.randn(1, 1, 23, 300),)),
}

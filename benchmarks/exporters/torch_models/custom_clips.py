"""Networks of videos, scans, lines of text, and templates that follow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Window = int | tuple[int, int, int]
Made = tuple[nn.Module, tuple[Tensor, ...]]


class SlowFast(nn.Module):
    """SlowFast: few frames with many channels, many with few, and strided windows over time between them."""

    def __init__(self) -> None:
        super().__init__()

        def block(a: int, b: int, k: Window, s: Window, p: Window) -> nn.Module:
            return nn.Sequential(nn.Conv3d(a, b, k, s, p, bias=False), nn.BatchNorm3d(b), nn.ReLU())

        self.slow, self.fast = (
            block(3, 64, (1, 7, 7), (1, 2, 2), (0, 3, 3)),
            block(3, 8, (5, 7, 7), (1, 2, 2), (2, 3, 3)),
        )
        self.pool = nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))
        self.lateral = nn.ModuleList(
            (block(8, 16, (7, 1, 1), (4, 1, 1), (3, 0, 0)), block(32, 64, (7, 1, 1), (4, 1, 1), (3, 0, 0)))
        )

        def bottle(a: int, m: int, b: int, t: Tensor) -> Tensor:
            return nn.Sequential(
                block(a, m, (t, 1, 1), 1, (t // 2, 0, 0)),
                block(m, m, (1, 3, 3), 1, (0, 1, 1)),
                nn.Conv3d(m, b, 1, bias=False),
                nn.BatchNorm3d(b),
            )

        self.s, self.f = bottle(80, 64, 256, 1), bottle(8, 8, 32, 3)
        self.ss, self.fs = block(80, 256, 1, 1, 0), block(8, 32, 1, 1, 0)
        self.head = nn.Linear(352, 100)

    def forward(self, slow: Tensor, fast: Tensor) -> Tensor:
        s, f = self.pool(self.slow(slow)), self.pool(self.fast(fast))
        s = torch.cat((s, self.lateral[0](f)), 1)
        s, f = functional.relu(self.s(s) + self.ss(s)), functional.relu(self.f(f) + self.fs(f))
        s = torch.cat((s, self.lateral[1](f)), 1)
        return self.head(torch.cat((s.mean((2, 3, 4)), f.mean((2, 3, 4))), 1))


class Shifted(nn.Module):
    """TSM: an eighth of the channels comes from the next frame and an eighth from the one before."""

    def __init__(self, width: int = 64, frames: int = 8) -> None:
        super().__init__()
        self.frames = frames
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 4, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())

        def block() -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )

        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.head = nn.Linear(width, 100)

    def _shift(self, x: Tensor) -> Tensor:
        nt, c, h, w = x.shape
        x = x.view(nt // self.frames, self.frames, c, h, w)
        fold = c // 8
        out = torch.zeros_like(x)
        out[:, :-1, :fold] = x[:, 1:, :fold]
        out[:, 1:, fold : 2 * fold] = x[:, :-1, fold : 2 * fold]
        out[:, :, 2 * fold :] = x[:, :, 2 * fold :]
        return out.view(nt, c, h, w)

    def forward(self, video: Tensor) -> Tensor:
        x = self.stem(video.flatten(0, 1))
        for block in self.blocks:
            x = functional.relu(x + block(self._shift(x)))
        return self.head(x.mean((2, 3)).view(-1, self.frames, x.shape[1]).mean(1))


class Separated(nn.Module):
    """CSN and MoViNet: depthwise windows over volumes, causal in time, with squeeze and excitation."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, width, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False), nn.BatchNorm3d(width), nn.Hardswish()
        )
        self.up, self.down = (
            nn.ModuleList(nn.Conv3d(width, 3 * width, 1, bias=False) for _ in range(2)),
            nn.ModuleList(nn.Conv3d(3 * width, width, 1, bias=False) for _ in range(2)),
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm3d(n) for n in (3 * width, 3 * width, width, 3 * width, 3 * width, width)
        )
        self.windows = nn.ModuleList(
            nn.Conv3d(3 * width, 3 * width, k, (1, 2 - i, 2 - i), (0, 1, 1), groups=3 * width, bias=False)
            for i, k in enumerate(((3, 3, 3), (5, 3, 3)))
        )
        self.gates = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool3d(1),
                nn.Conv3d(3 * width, 48, 1),
                nn.Hardswish(),
                nn.Conv3d(48, 3 * width, 1),
                nn.Hardsigmoid(),
            )
            for _ in range(2)
        )
        self.head = nn.Linear(width, 100)

    def forward(self, video: Tensor) -> Tensor:
        x = self.stem(video)
        for i in range(2):
            y = functional.hardswish(self.norms[3 * i](self.up[i](x)))
            y = functional.hardswish(
                self.norms[3 * i + 1](self.windows[i](functional.pad(y, (0, 0, 0, 0, 2 + 2 * i, 0))))
            )
            y = self.norms[3 * i + 2](self.down[i](y * self.gates[i](y)))
            x = x + y if y.shape == x.shape else y
        return self.head(x.mean((2, 3, 4)))


class MedNext(nn.Module):
    """MedNeXt and SegResNet: depthwise windows over volumes, GroupNorm, responses normalised by their lengths."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv3d(1, width, 1)
        self.window, self.norm = nn.Conv3d(width, width, 5, padding=2, groups=width), nn.GroupNorm(width, width)
        self.a, self.b = nn.Conv3d(width, 4 * width, 1), nn.Conv3d(4 * width, width, 1)
        self.gamma, self.beta = (
            nn.Parameter(torch.zeros(1, 4 * width, 1, 1, 1)),
            nn.Parameter(torch.zeros(1, 4 * width, 1, 1, 1)),
        )
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv3d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.down, self.back = nn.Conv3d(width, width, 3, 2, 1), nn.Conv3d(width, width, 1)
        self.head = nn.Conv3d(width, 4, 1)

    def forward(self, scan: Tensor) -> Tensor:
        x = self.stem(scan)
        y = functional.gelu(self.a(self.norm(self.window(x))))
        lengths = torch.norm(y, p=2, dim=(-3, -2, -1), keepdim=True)
        y = self.gamma * (y * (lengths / (lengths.mean(1, True) + 1e-6))) + self.beta + y
        x = x + self.b(y)
        y = self.down(x)
        z = y
        for norm, conv in zip(self.norms, self.convs, strict=True):
            z = conv(functional.relu(norm(z)))
        x = x + functional.interpolate(self.back(y + z), scale_factor=2, mode="trilinear", align_corners=False)
        return self.head(x)


class Unetr(nn.Module):
    """UNETR: a vision transformer over patches of a scan, whose tokens become volumes of every size."""

    def __init__(self, width: int = 192, heads: int = 6) -> None:
        super().__init__()
        self.width = width
        self.patches, self.places = nn.Conv3d(1, width, 8, 8), nn.Parameter(torch.randn(1, 64, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0, "gelu", batch_first=True, norm_first=True)
            for _ in range(2)
        )

        def conv(a: int, b: int) -> nn.Module:
            return nn.Sequential(nn.Conv3d(a, b, 3, padding=1, bias=False), nn.InstanceNorm3d(b), nn.LeakyReLU(0.01))

        self.full = conv(1, 16)
        self.a, self.b = (
            nn.ConvTranspose3d(width, 64, 2, 2, bias=False),
            nn.ConvTranspose3d(width, 64, 2, 2, bias=False),
        )
        self.merge, self.up, self.last = conv(128, 64), nn.ConvTranspose3d(64, 16, 4, 4, bias=False), conv(32, 16)
        self.head = nn.Conv3d(16, 4, 1)

    def forward(self, scan: Tensor) -> Tensor:
        x = self.patches(scan).flatten(2).transpose(1, 2) + self.places
        held = []
        for layer in self.layers:
            x = layer(x)
            held.append(x.view(-1, 4, 4, 4, self.width).permute(0, 4, 1, 2, 3))
        y = self.merge(torch.cat((self.a(held[1]), self.b(held[0])), 1))
        return self.head(self.last(torch.cat((self.up(y), self.full(scan)), 1)))


class Svtr(nn.Module):
    """SVTR: lines of text as patches, local and global mixing, heights merged by strided windows."""

    def __init__(self, width: int = 64, heads: int = 2) -> None:
        super().__init__()

        def conv(a: int, b: int, s: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.GELU())

        self.stem = nn.Sequential(conv(3, width // 2, 2), conv(width // 2, width, 2))
        self.places, self.heads = nn.Parameter(torch.randn(1, 8 * 40, width) * 0.02), heads
        self.local = self._mixer(width)
        self.merge, self.norm = nn.Conv2d(width, 2 * width, 3, (2, 1), 1), nn.LayerNorm(2 * width)
        self.wide = self._mixer(2 * width)
        at = torch.arange(8 * 40)
        far = ((at[:, None] // 40 - at // 40).abs() > 3) | ((at[:, None] % 40 - at % 40).abs() > 5)
        self.register_buffer("mask", torch.where(far, float("-inf"), 0.0)[None, None])
        self.last, self.head = nn.Linear(2 * width, 96), nn.Linear(96, 97)

    @staticmethod
    def _mixer(width: int) -> nn.ModuleDict:
        return nn.ModuleDict(
            {
                "n1": nn.LayerNorm(width),
                "qkv": nn.Linear(width, 3 * width),
                "proj": nn.Linear(width, width),
                "n2": nn.LayerNorm(width),
                "a": nn.Linear(width, 4 * width),
                "b": nn.Linear(4 * width, width),
            }
        )

    def _mix(self, m: nn.ModuleDict, x: Tensor, mask: Tensor | None) -> Tensor:
        b, n, c = x.shape
        q, k, v = m["qkv"](m["n1"](x)).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores if mask is None else scores + mask
        x = x + m["proj"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
        return x + m["b"](functional.gelu(m["a"](m["n2"](x))))

    def forward(self, line: Tensor) -> Tensor:
        x = self.stem(line)
        b, c, h, w = x.shape
        x = self._mix(self.local, x.flatten(2).transpose(1, 2) + self.places, self.mask)
        x = self.merge(x.transpose(1, 2).view(b, c, h, w))
        x = self._mix(self.wide, self.norm(x.flatten(2).transpose(1, 2)), None)
        x = x.transpose(1, 2).view(b, 2 * c, h // 2, w).mean(2).transpose(1, 2)
        return self.head(functional.hardswish(self.last(x))).softmax(-1)


class Followed(nn.Module):
    """SiamFC and SiamRPN++: a template's map is the filters of the search image, of each channel or of all."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 7, 2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(32, width, 3),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2),
        )
        self.head = nn.Conv2d(width, 5 * 2, 1)

    def forward(self, template: Tensor, search: Tensor) -> tuple[Tensor, Tensor]:
        z, x = self.net(template), self.net(search)
        b, c, h, w = x.shape
        depth = functional.conv2d(x.view(1, b * c, h, w), z.view(b * c, 1, *z.shape[2:]), groups=b * c)
        full = functional.conv2d(x.view(1, b * c, h, w), z, groups=b)
        return self.head(depth.view(b, c, *depth.shape[2:])), full.view(b, 1, *full.shape[2:])


MODULES: dict[str, Callable[[], Made]] = {
    "slow_fast": lambda: (SlowFast(), (torch.randn(1, 3, 4, 112, 112), torch.randn(1, 3, 16, 112, 112))),
    "tsm": lambda: (Shifted(), (torch.randn(1, 8, 3, 112, 112),)),
    "csn": lambda: (Separated(), (torch.randn(1, 3, 8, 112, 112),)),
    "med_next": lambda: (MedNext(), (torch.randn(1, 1, 32, 32, 32),)),
    "unetr": lambda: (Unetr(), (torch.randn(1, 1, 32, 32, 32),)),
    "svtr": lambda: (Svtr(), (torch.randn(1, 3, 32, 160),)),
    "siamese": lambda: (Followed(), (torch.randn(1, 3, 63, 63), torch.randn(1, 3, 127, 127))),
}

ONE_FORM = {"unetr": "dynamo18"}
"""The one that torch-script does not export."""

"""Networks of sound and speech."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Snake(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).pow(2)


class Codec(nn.Module):
    """DAC: residual units with snake activations, strided windows, a quantiser of residuals, and back."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()

        def unit(w: int, d: int) -> nn.ModuleList:
            return nn.ModuleList(
                (Snake(w), nn.Conv1d(w, w, 7, padding=3 * d, dilation=d), Snake(w), nn.Conv1d(w, w, 1))
            )

        self.first, self.last = nn.Conv1d(1, width, 7, padding=3), nn.Conv1d(width, 1, 7, padding=3)
        self.e = nn.ModuleList(unit(width * 2**i, d) for i in range(2) for d in (1, 3, 9))
        self.down = nn.ModuleList(
            nn.Sequential(Snake(width * 2**i), nn.Conv1d(width * 2**i, 2 * width * 2**i, 2 * s, s, s // 2))
            for i, s in enumerate((2, 4))
        )
        self.into, self.out = (
            nn.ModuleList(nn.Conv1d(4 * width, 8, 1) for _ in range(2)),
            nn.ModuleList(nn.Conv1d(8, 4 * width, 1) for _ in range(2)),
        )
        self.codes = nn.ParameterList(nn.Parameter(torch.randn(256, 8)) for _ in range(2))
        self.up = nn.ModuleList(
            nn.Sequential(Snake(2 * width * 2**i), nn.ConvTranspose1d(2 * width * 2**i, width * 2**i, 2 * s, s, s // 2))
            for i, s in ((1, 4), (0, 2))
        )
        self.d = nn.ModuleList(unit(width * 2**i, d) for i in (1, 0) for d in (1, 3, 9))

    @staticmethod
    def _unit(unit: nn.ModuleList, x: Tensor) -> Tensor:
        y = x
        for layer in unit:
            y = layer(y)
        return x + y

    def forward(self, sound: Tensor) -> Tensor:
        x = self.first(sound)
        for i, down in enumerate(self.down):
            for unit in self.e[3 * i : 3 * i + 3]:
                x = self._unit(unit, x)
            x = down(x)
        rest, total = x, torch.zeros_like(x)
        for into, out, codes in zip(self.into, self.out, self.codes, strict=True):
            seen = functional.normalize(into(rest).transpose(1, 2), dim=-1)
            table = functional.normalize(codes, dim=-1)
            nearest = (seen @ table.t()).argmax(-1)
            found = out(codes[nearest].transpose(1, 2))
            rest, total = rest - found, total + found
        x = total
        for i, up in enumerate(self.up):
            x = up(x)
            for unit in self.d[3 * i : 3 * i + 3]:
                x = self._unit(unit, x)
        return torch.tanh(self.last(x))


class BigVgan(nn.Module):
    """BigVGAN: snakes at twice the rate between filters of a window, and blocks of several dilations added up."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(80, 2 * width, 7, padding=3), nn.Conv1d(width, 1, 7, padding=3)
        self.up = nn.ConvTranspose1d(2 * width, width, 8, 4, 2)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, width, k, padding=(k - 1) // 2 * d, dilation=d) for d in (1, 3))
            for k in (3, 7, 11)
        )
        self.alphas = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(7))
        self.betas = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(7))
        self.register_buffer("filter", torch.hann_window(12, periodic=False).view(1, 1, -1) / 5.5)

    def _snake(self, x: Tensor, index: int) -> Tensor:
        width = x.shape[1]
        x = functional.pad(x, (5, 5), mode="replicate")
        x = 2 * functional.conv_transpose1d(x, self.filter.expand(width, -1, -1), stride=2, groups=width)[..., 15:-15]
        x = x + (self.betas[index].exp()[:, None] + 1e-9).reciprocal() * torch.sin(
            x * self.alphas[index].exp()[:, None]
        ).pow(2)
        return functional.conv1d(
            functional.pad(x, (5, 6), mode="replicate"), self.filter.expand(width, -1, -1), stride=2, groups=width
        )

    def forward(self, mel: Tensor) -> Tensor:
        x = self.up(self.first(mel))
        found, index = [], 0
        for block in self.blocks:
            y = x
            for layer in block:
                y, index = y + layer(self._snake(y, index)), index + 1
            found.append(y)
        x = self._snake(sum(found) / 3, index)
        return torch.tanh(self.last(x))


class Streamed(nn.Module):
    """EnCodec: causal windows padded by reflection, ELU, and two layers of LSTM around which the input passes."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.a, self.b, self.short = (
            nn.Conv1d(1, width, 7),
            nn.Conv1d(width, width // 2, 3),
            nn.Conv1d(width // 2, width, 1),
            nn.Conv1d(width, width, 1),
        )
        self.down, self.down2 = nn.Conv1d(width, 2 * width, 4, 2), nn.Conv1d(2 * width, 4 * width, 8, 4)
        self.lstm, self.last = nn.LSTM(4 * width, 4 * width, 2), nn.Conv1d(4 * width, 128, 7)
        self.up = nn.ConvTranspose1d(128, width, 8, 4)
        self.out = nn.Conv1d(width, 1, 7)

    def forward(self, sound: Tensor) -> Tensor:
        def pad(x: Tensor, n: int) -> Tensor:
            return functional.pad(x, (n, 0), mode="reflect")

        x = self.first(pad(sound, 6))
        x = self.short(x) + self.b(functional.elu(self.a(pad(functional.elu(x), 2))))
        x = self.down2(pad(functional.elu(self.down(pad(functional.elu(x), 2))), 4))
        y = x.permute(2, 0, 1)
        x = (self.lstm(y)[0] + y).permute(1, 2, 0)
        x = self.last(pad(functional.elu(x), 6))
        x = self.up(functional.elu(x))[..., :-4]
        return self.out(pad(functional.elu(x), 6))


class Bands(nn.Module):
    """BC-ResNet: means over frequencies in front of windows over time, broadcast back; normalised by bands."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 2 * width, 5, (2, 1), 2, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, width, 1),
        )
        self.f2 = nn.ModuleList(
            nn.Conv2d(width, width, (3, 1), padding=(1, 0), groups=width, bias=False) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(5 * width) for _ in range(2))
        self.f1 = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, (1, 3), padding=(0, 2**i), dilation=(1, 2**i), groups=width, bias=False),
                nn.BatchNorm2d(width),
                nn.SiLU(),
                nn.Conv2d(width, width, 1),
            )
            for i in range(2)
        )
        self.head = nn.Conv2d(width, 12, 1)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.stem(mel)
        for f2, norm, f1 in zip(self.f2, self.norms, self.f1, strict=True):
            y = f2(x)
            b, c, f, t = y.shape
            y = norm(y.view(b, c * 5, f // 5, t)).view(b, c, f, t)
            x = functional.relu(x + y + f1(y.mean(2, True)))
        return self.head(x.mean((2, 3), True)).flatten(1)


class Separable1d(nn.Module):
    """QuartzNet and Citrinet: separable windows over time, squeeze and excitation, residuals with a BatchNorm."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()

        def apart(a: int, b: int, k: int, s: int = 1) -> nn.Module:
            return nn.Sequential(
                nn.Conv1d(a, a, k, s, k // 2, groups=a, bias=False), nn.Conv1d(a, b, 1, bias=False), nn.BatchNorm1d(b)
            )

        self.first = nn.Sequential(apart(80, width, 5, 2), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(apart(width, width, k), nn.ReLU(), apart(width, width, k)) for k in (11, 39)
        )
        self.gates = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool1d(1),
                nn.Conv1d(width, width // 8, 1),
                nn.ReLU(),
                nn.Conv1d(width // 8, width, 1),
                nn.Sigmoid(),
            )
            for _ in range(2)
        )
        self.shorts = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 1, bias=False), nn.BatchNorm1d(width)) for _ in range(2)
        )
        self.head = nn.Conv1d(width, 29, 1)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for block, gate, short in zip(self.blocks, self.gates, self.shorts, strict=True):
            y = block(x)
            x = functional.relu(y * gate(y) + short(x))
        return self.head(x).transpose(1, 2).log_softmax(-1)


class Located(nn.Module):
    """UnivNet: windows predicted for each stretch of time (location-variable convolution), gated."""

    def __init__(self, width: int = 16, hop: int = 16) -> None:
        super().__init__()
        self.width, self.hop = width, hop
        self.kernels = nn.Sequential(
            nn.Conv1d(80, 64, 5, padding=2), nn.LeakyReLU(0.1), nn.Conv1d(64, width * 2 * width * 3, 3, padding=1)
        )
        self.first, self.last, self.conv = (
            nn.Conv1d(8, width, 7, padding=3),
            nn.Conv1d(width, 1, 7, padding=3),
            nn.Conv1d(width, width, 3, padding=1),
        )

    def forward(self, noise: Tensor, mel: Tensor) -> Tensor:
        x = self.first(noise)
        batch, width, length = x.shape
        kernels = self.kernels(mel).view(batch, width, 2 * width, 3, -1)
        y = functional.pad(functional.leaky_relu(self.conv(functional.leaky_relu(x, 0.2)), 0.2), (1, 1))
        seen = y.unfold(2, self.hop + 2, self.hop).unfold(3, 3, 1)
        found = torch.einsum("bilsk,biokl->bols", seen, kernels)
        found = found.reshape(batch, 2 * width, length)
        return torch.tanh(self.last(x + found[:, :width].sigmoid() * found[:, width:].tanh()))


class Complex(nn.Module):
    """DCCRN: complex convolutions as four real ones, an LSTM over frames, a complex mask."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def conv(a: int, b: int) -> nn.ModuleList:
            return nn.ModuleList(nn.Conv2d(a, b, (5, 2), (2, 1), (2, 1)) for _ in range(2))

        def back(a: int, b: int) -> nn.ModuleList:
            return nn.ModuleList(nn.ConvTranspose2d(a, b, (5, 2), (2, 1), (2, 0), (1, 0)) for _ in range(2))

        self.e = nn.ModuleList((conv(1, width), conv(width, 2 * width)))
        self.d = nn.ModuleList((back(4 * width, width), back(2 * width, 1)))
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (2 * width, 4 * width, 2 * width))
        self.lstm = nn.LSTM(2 * width * 2 * 16, 64, batch_first=True)
        self.line = nn.Linear(64, 2 * width * 2 * 16)

    @staticmethod
    def _complex(pair: nn.ModuleList, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        return torch.cat((pair[0](a) - pair[1](b), pair[0](b) + pair[1](a)), 1)

    def forward(self, spectrum: Tensor) -> Tensor:
        x, held = spectrum, []
        for pair, norm in zip(self.e, self.norms, strict=False):
            x = functional.leaky_relu(norm(self._complex(pair, x)[..., :-1]), 0.1)
            held.append(x)
        b, c, f, t = x.shape
        y = self.line(self.lstm(x.permute(0, 3, 1, 2).reshape(b, t, c * f))[0])
        x = y.view(b, t, c, f).permute(0, 2, 3, 1)
        for i, pair in enumerate(self.d):
            a, other = x.chunk(2, 1), held[1 - i].chunk(2, 1)
            x = self._complex(pair, torch.cat((a[0], other[0], a[1], other[1]), 1))[..., : spectrum.shape[-1]]
            if i == 0:
                x = functional.leaky_relu(self.norms[2](x), 0.1)
        real, imag = x.chunk(2, 1)
        sr, si = spectrum.chunk(2, 1)
        size, phase = torch.tanh((real**2 + imag**2 + 1e-8).sqrt()), torch.atan2(imag, real + 1e-8)
        sound, angle = (sr**2 + si**2 + 1e-8).sqrt() * size, torch.atan2(si, sr + 1e-8) + phase
        return torch.cat((sound * angle.cos(), sound * angle.sin()), 1)


MODULES: dict[str, Callable[[], Made]] = {
    "dac": lambda: (Codec(), (torch.randn(1, 1, 4096),)),
    "big_vgan": lambda: (BigVgan(), (torch.randn(1, 80, 64),)),
    "encodec": lambda: (Streamed(), (torch.randn(1, 1, 2048),)),
    "bc_resnet": lambda: (Bands(), (torch.randn(1, 1, 40, 101),)),
    "citrinet": lambda: (Separable1d(), (torch.randn(1, 80, 400),)),
    "univ_net": lambda: (Located(), (torch.randn(1, 8, 512), torch.randn(1, 80, 32))),
    "dccrn": lambda: (Complex(), (torch.randn(1, 2, 64, 50),)),
}

ONE_FORM = {"big_vgan": "dynamo18", "univ_net": "dynamo18"}
"""Those that torch-script does not export."""

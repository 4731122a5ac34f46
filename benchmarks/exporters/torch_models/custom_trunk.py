"""The trunk of networks that people write themselves: maps of several sizes, of convolutions with BatchNorm."""

from __future__ import annotations

from torch import Tensor, nn


def conv(
    a: int, b: int, window: int = 3, stride: int = 1, act: str | None = "relu", dilation: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution, BatchNorm and an activation."""
    acts = {
        "relu": nn.ReLU,
        "silu": nn.SiLU,
        "leaky": lambda: nn.LeakyReLU(0.1),
        "mish": nn.Mish,
        "prelu": lambda: nn.PReLU(b),
        "hswish": nn.Hardswish,
    }
    found = [nn.Conv2d(a, b, window, stride, window // 2 * dilation, dilation, groups, bias=False), nn.BatchNorm2d(b)]
    return nn.Sequential(*found, *([acts[act]()] if act else []))


class Trunk(nn.Module):
    """Maps of a fourth to a 32nd of the image."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512), act: str = "relu") -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, widths[0], 7, 2, act), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.ModuleList(
            nn.Sequential(conv(a, b, 3, 1 if i == 0 else 2, act), conv(b, b, 3, 1, act))
            for i, (a, b) in enumerate(zip((widths[0], *widths), widths, strict=False))
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        x, found = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found

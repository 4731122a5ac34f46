"""What many modules of one's own stand in: a small network of two widths, and a residual block."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional


def conv(a: int, b: int, window: int = 1, stride: int = 1, act: nn.Module | None = None, **more: int) -> nn.Sequential:
    """Convolution and BatchNorm, and what `act` is."""
    found = [
        nn.Conv2d(a, b, window, stride, window // 2 * more.pop("dilation", 1), bias=False, **more),
        nn.BatchNorm2d(b),
    ]
    return nn.Sequential(*found, *([act] if act else []))


class Backbone(nn.Module):
    """Two blocks of each of two widths, and a classifier."""

    def __init__(self, block: Callable[[int], nn.Module], widths: tuple[int, ...] = (64, 128)) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(3, widths[0], 7, 2, nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
        for before, width in zip((widths[0], *widths), widths, strict=False):
            if before != width:
                layers.append(conv(before, width, 3, 2, nn.ReLU()))
            layers += [block(width), block(width)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


class Bottleneck(nn.Module):
    """A residual block of three convolutions, what attends to their result, and the sum."""

    def __init__(self, width: int, attention: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            conv(width, width // 4, 1, 1, nn.ReLU()),
            conv(width // 4, width // 4, 3, 1, nn.ReLU()),
            conv(width // 4, width),
        )
        self.attention = attention(width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.attention(self.convs(x)))

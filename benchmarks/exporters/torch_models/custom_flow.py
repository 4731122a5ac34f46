"""Networks that compare images: optical flow and stereo."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[Tensor, ...]]


def c3(a: int, b: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(a, b, 3, stride, dilation, dilation)


def leaky(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, 0.1)


def correlated(a: Tensor, b: Tensor, reach: int = 4) -> Tensor:
    """The products of each pixel with its neighbours in the other image: means over channels of slices."""
    padded = functional.pad(b, (reach,) * 4)
    h, w = a.shape[2:]
    return torch.cat(
        [
            (a * padded[:, :, i : i + h, j : j + w]).mean(1, True)
            for i in range(2 * reach + 1)
            for j in range(2 * reach + 1)
        ],
        1,
    )


def warped(x: Tensor, flow: Tensor) -> Tensor:
    _b, _, h, w = x.shape
    ys, xs = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
    grid = torch.stack((2 * (xs + flow[:, 0]) / (w - 1) - 1, 2 * (ys + flow[:, 1]) / (h - 1) - 1), -1)
    return functional.grid_sample(x, grid, align_corners=True)


class Pwc(nn.Module):
    """PWC-Net: pyramids of both images, the second warped by the flow so far, correlations, dense decoders."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 16, 32, 64)
        self.down = nn.ModuleList(
            nn.Sequential(c3(a, b, 2), nn.LeakyReLU(0.1), c3(b, b), nn.LeakyReLU(0.1))
            for a, b in itertools.pairwise(widths)
        )
        grown = (64, 64, 32)
        self.dense, self.flows, self.ups = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i, width in enumerate((64, 32)):
            base = 81 if i == 0 else 81 + width + 2
            self.dense.append(nn.ModuleList(c3(base + sum(grown[:j]), each) for j, each in enumerate(grown)))
            self.flows.append(c3(base + sum(grown), 2))
            self.ups.append(nn.ConvTranspose2d(2, 2, 4, 2, 1))
        total = 81 + 34 + sum(grown)
        self.context = nn.Sequential(
            c3(total, 128),
            nn.LeakyReLU(0.1),
            c3(128, 96, 1, 2),
            nn.LeakyReLU(0.1),
            c3(96, 32, 1, 4),
            nn.LeakyReLU(0.1),
            c3(32, 2),
        )

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = [], []
        for layer in self.down:
            first, second = layer(first), layer(second)
            a.append(first)
            b.append(second)
        flow = None
        for i, (dense, head, up) in enumerate(zip(self.dense, self.flows, self.ups, strict=True)):
            x, y = a[-1 - i], b[-1 - i]
            if flow is None:
                found = leaky(correlated(x, y))
            else:
                found = torch.cat((leaky(correlated(x, warped(y, flow))), x, flow), 1)
            for layer in dense:
                found = torch.cat((leaky(layer(found)), found), 1)
            small = head(found)
            if i == 0:
                flow = up(small)
            else:
                flow = small + self.context(found)
        return functional.interpolate(20 * flow, scale_factor=4, mode="bilinear", align_corners=False)


class Aggregated(nn.Module):
    """GMA: motion features gathered by the context's attention over all places, and separable convolutional GRUs."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3),
            nn.InstanceNorm2d(64),
            nn.ReLU(),
            c3(64, 96, 2),
            nn.InstanceNorm2d(96),
            nn.ReLU(),
            c3(96, 2 * width, 2),
        )
        self.qk, self.v, self.gamma = (
            nn.Conv2d(width, 2 * width, 1, bias=False),
            nn.Conv2d(width, width, 1, bias=False),
            nn.Parameter(torch.zeros(1)),
        )
        self.motion = nn.Sequential(nn.Conv2d(3, 64, 7, padding=3), nn.ReLU(), c3(64, width))
        both = 4 * width
        self.grus = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(both, width, k, padding=(k[0] // 2, k[1] // 2)) for _ in range(3))
            for k in ((1, 5), (5, 1))
        )
        self.delta = nn.Sequential(c3(width, 256), nn.ReLU(), c3(256, 2))
        self.mask = nn.Sequential(c3(width, 256), nn.ReLU(), nn.Conv2d(256, 64 * 9, 1))

    def forward(self, image: Tensor, flow: Tensor) -> Tensor:
        hidden, context = self.net(image).chunk(2, 1)
        hidden, context = hidden.tanh(), context.relu()
        b, c, h, w = hidden.shape
        q, k = self.qk(context).flatten(2).chunk(2, 1)
        attention = (q.transpose(1, 2) * c**-0.5 @ k).softmax(-1)
        for _ in range(2):
            motion = self.motion(torch.cat((flow, flow.pow(2).sum(1, True)), 1))
            gathered = (attention @ self.v(motion).flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b, c, h, w)
            given = torch.cat((context, motion, motion + self.gamma * gathered), 1)
            for z, r, q in self.grus:
                both = torch.cat((hidden, given), 1)
                update, reset = z(both).sigmoid(), r(both).sigmoid()
                hidden = (1 - update) * hidden + update * q(torch.cat((reset * hidden, given), 1)).tanh()
            flow = flow + self.delta(hidden)
        mask = (0.25 * self.mask(hidden)).view(b, 1, 9, 8, 8, h, w).softmax(2)
        up = functional.unfold(8 * flow, 3, padding=1).view(b, 2, 9, 1, 1, h, w)
        return (mask * up).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(b, 2, 8 * h, 8 * w)


class Stereo(nn.Module):
    """PSMNet and GwcNet: a volume of correlations by group and disparity, convolutions over it, a mean disparity."""

    def __init__(self, groups: int = 8, most: int = 16) -> None:
        super().__init__()
        self.groups, self.most = groups, most
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            c3(64, 64),
        )

        def block(a: int, b: int, s: int = 1) -> nn.Module:
            return nn.Sequential(nn.Conv3d(a, b, 3, s, 1, bias=False), nn.BatchNorm3d(b))

        self.first, self.down, self.deep = block(groups, 32), block(32, 64, 2), block(64, 64)
        self.up = nn.Sequential(nn.ConvTranspose3d(64, 32, 3, 2, 1, 1, bias=False), nn.BatchNorm3d(32))
        self.last = nn.Conv3d(32, 1, 3, padding=1, bias=False)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        a, b = self.net(left), self.net(right)
        n, c, h, w = a.shape
        costs = []
        for shift in range(self.most):
            moved = functional.pad(b[:, :, :, : w - shift], (shift, 0))
            costs.append((a * moved).view(n, self.groups, c // self.groups, h, w).mean(2))
        x = functional.relu(self.first(torch.stack(costs, 2)))
        y = functional.relu(self.deep(functional.relu(self.down(x))))
        cost = self.last(functional.relu(self.up(y) + x))
        cost = functional.interpolate(cost, scale_factor=4, mode="trilinear", align_corners=False).squeeze(1)
        return (cost.softmax(1) * torch.arange(4.0 * self.most).view(1, -1, 1, 1)).sum(1)


MODULES: dict[str, Callable[[], Made]] = {
    "pwc_net": lambda: (Pwc(), (torch.rand(1, 3, 128, 192), torch.rand(1, 3, 128, 192))),
    "gma": lambda: (Aggregated(), (torch.rand(1, 3, 128, 192), torch.randn(1, 2, 16, 24))),
    "stereo": lambda: (Stereo(), (torch.rand(1, 3, 96, 160), torch.rand(1, 3, 96, 160))),
}

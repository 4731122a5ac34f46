"""Further networks: what follows backbones of detectors, weights and states of images, wavelets, graphs and flows."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exporters.torch_models.custom_backbones import Backbone, conv

Made = tuple[nn.Module, tuple[Tensor, ...]]


def picture(size: int = 128) -> tuple[Tensor, ...]:
    return (torch.rand(1, 3, size, size),)


def trunk(*widths: int) -> nn.Sequential:
    """Windows of 3, each at half the size."""
    return nn.Sequential(*(conv(a, b, 3, 2, nn.ReLU()) for a, b in zip((3, *widths), widths, strict=False)))


class Regions(nn.Module):
    """Mask R-CNN's second stage: regions of a map in two sizes, classes and boxes, masks by transposed windows."""

    def __init__(self, width: int = 64, classes: int = 21) -> None:
        super().__init__()
        from torchvision.ops import roi_align

        self.align, self.trunk = roi_align, trunk(64, width)
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(width * 49, 256), nn.ReLU())
        self.classes, self.boxes = nn.Linear(256, classes), nn.Linear(256, 4 * classes)
        self.masks = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(width, width, 2, 2), nn.ReLU(),
            nn.Conv2d(width, classes, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor, boxes: Tensor) -> tuple[Tensor, ...]:
        x, found = self.trunk(x), [boxes[0]]
        seen = self.dense(self.align(x, found, (7, 7), 0.25, 2))
        return self.classes(seen).softmax(-1), self.boxes(seen), self.masks(self.align(x, found, (14, 14), 0.25, 2))


class Corners(nn.Module):
    """CornerNet: maxima of all that lies below and to the right, by shifts of growing length."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.trunk = trunk(32, width)
        self.sides = nn.ModuleList(conv(width, width, 3, 1, nn.ReLU()) for _ in range(2))
        self.joined, self.beside = conv(width, width, 3), conv(width, width)
        self.heads = nn.ModuleList(nn.Conv2d(width, outputs, 1) for outputs in (80, 1, 2))

    def running(self, x: Tensor, axis: int) -> Tensor:
        far = 1
        while far < x.shape[axis]:
            moved = x.narrow(axis, far, x.shape[axis] - far)
            x = torch.maximum(x, functional.pad(moved, (0, far, 0, 0) if axis == 3 else (0, 0, 0, far), value=-1e4))
            far *= 2
        return x

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.trunk(x)
        down, across = (self.running(side(x), axis) for side, axis in zip(self.sides, (2, 3), strict=True))
        x = functional.relu(self.joined(down + across) + self.beside(x))
        return tuple(head(x) for head in self.heads)


class Uncertain(nn.Module):
    """PointRend: the pixels that are least certain are sampled from two maps, judged again and put back."""

    def __init__(self, classes: int = 21, points: int = 256) -> None:
        super().__init__()
        self.fine, self.coarse, self.points = conv(3, 64, 3, 2, nn.ReLU()), conv(64, 128, 3, 2, nn.ReLU()), points
        self.head = nn.Conv2d(128, classes, 1)
        self.judge = nn.Sequential(nn.Conv1d(64 + classes, 128, 1), nn.ReLU(), nn.Conv1d(128, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        coarse = functional.interpolate(self.head(self.coarse(fine)), size=fine.shape[2:], mode="bilinear")
        batch, classes, rows, columns = coarse.shape
        best = coarse.topk(2, 1)[0]
        place = (best[:, 1] - best[:, 0]).flatten(1).topk(self.points, 1)[1]
        at = torch.stack(((place % columns).float() / columns, (place // columns).float() / rows), -1) * 2 - 1
        maps = (functional.grid_sample(each, at[:, None], align_corners=False)[:, :, 0] for each in (fine, coarse))
        judged = self.judge(torch.cat(tuple(maps), 1))
        found = coarse.flatten(2).scatter(2, place[:, None].expand(-1, classes, -1), judged)
        return found.view(batch, classes, rows, columns)


class Unpooled(nn.Module):
    """SegNet: a pooling's places say where its results go on the way up."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 96)) -> None:
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList(conv(a, b, 3, 1, nn.ReLU()) for a, b in pairs)
        self.up = nn.ModuleList(conv(b, max(a, widths[0]), 3, 1, nn.ReLU()) for a, b in reversed(pairs))
        self.head = nn.Conv2d(widths[0], 21, 1)

    def forward(self, x: Tensor) -> Tensor:
        places = []
        for layer in self.down:
            x, place = functional.max_pool2d(layer(x), 2, return_indices=True)
            places.append(place)
        for layer in self.up:
            x = layer(functional.max_unpool2d(x, places.pop(), 2))
        return self.head(x)


class Bases(nn.Module):
    """EMANet: a few bases of all pixels, found in three turns of expectation and maximisation."""

    def __init__(self, width: int = 128, bases: int = 64) -> None:
        super().__init__()
        self.trunk, self.before = trunk(32, 64, width), nn.Conv2d(width, width, 1)
        self.bases = nn.Parameter(torch.randn(1, width, bases) * 0.1)
        self.after, self.head = conv(width, width), nn.Conv2d(width, 19, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.trunk(x)
        seen = self.before(x).flatten(2)
        bases = self.bases.expand(x.shape[0], -1, -1)
        for _ in range(3):
            shares = (seen.transpose(1, 2) @ bases).softmax(2)
            bases = seen @ (shares / (1e-6 + shares.sum(1, keepdim=True)))
            bases = bases / (1e-6 + bases.norm(dim=1, keepdim=True))
        found = functional.relu(bases @ shares.transpose(1, 2)).view(x.shape)
        return self.head(functional.relu(self.after(found) + x))


class Wavelets(nn.Module):
    """MWCNN: sums and differences of every second pixel in place of poolings, and pixels put between pixels on the way
    back."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU())
        self.after = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.before(x)
        even, odd = first[:, :, 0::2] / 2, first[:, :, 1::2] / 2
        a, b, c, d = even[..., 0::2], odd[..., 0::2], even[..., 1::2], odd[..., 1::2]
        seen = self.middle(torch.cat((a + b + c + d, -a - b + c + d, -a + b - c + d, a - b - c + d), 1))
        a, b, c, d = (part / 2 for part in seen.chunk(4, 1))
        back = torch.zeros_like(first)
        back[:, :, 0::2, 0::2], back[:, :, 1::2, 0::2] = a - b - c + d, a - b + c - d
        back[:, :, 0::2, 1::2], back[:, :, 1::2, 1::2] = a + b - c - d, a + b + c + d
        return self.after(first + back) + x


class Grid(nn.Module):
    """HDRNet: a small volume of colour matrices, sampled where a pixel lies and by how bright it is."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.volume = trunk(8, 16, 32), nn.Conv2d(32, 96, 1)
        self.guide = nn.Sequential(nn.Conv2d(3, 16, 1), nn.ReLU(), nn.Conv2d(16, 1, 1), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        small = self.volume(self.trunk(functional.interpolate(x, size=(128, 128), mode="bilinear")))
        batch, _, rows, columns = x.shape
        y, z = torch.meshgrid(torch.linspace(-1, 1, rows), torch.linspace(-1, 1, columns), indexing="ij")
        places = torch.stack((z, y), -1).expand(batch, -1, -1, -1)
        at = torch.cat((places, self.guide(x).permute(0, 2, 3, 1)), -1)[:, None]
        volume = small.view(batch, 12, 8, *small.shape[2:])
        matrix = functional.grid_sample(volume, at, align_corners=True)[:, :, 0].view(batch, 3, 4, rows, columns)
        return (matrix[:, :, :3] * x[:, None]).sum(2) + matrix[:, :, 3]


class Wired(nn.Module):
    """RandWire: every node adds up some earlier ones, each with a learned share."""

    def __init__(self, width: int = 48, nodes: int = 8) -> None:
        super().__init__()
        draw = random.Random(1)
        self.edges = [sorted(draw.sample(range(node), min(node, 3))) for node in range(nodes)]
        self.shares = nn.ParameterList(nn.Parameter(torch.randn(max(1, len(edges)))) for edges in self.edges)
        self.trunk, self.head = trunk(24, width), nn.Linear(width, 10)
        self.nodes = nn.ModuleList(
            nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, groups=width), conv(width, width))
            for _ in range(nodes)
        )

    def forward(self, x: Tensor) -> Tensor:
        x, made = self.trunk(x), list[Tensor]()
        for edges, shares, node in zip(self.edges, self.shares, self.nodes, strict=True):
            parts = [made[edge] * torch.sigmoid(shares[place]) for place, edge in enumerate(edges)]
            made.append(node(sum(parts[1:], parts[0]) if parts else x))
        return self.head(((made[-1] + made[-2] + made[-3]) / 3).mean((2, 3)))


class Channels(nn.Module):
    """IGCV and ChannelNets: groups that interleave, and a window over channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1, groups=width // 2), conv(width, width, groups=2)
        self.over, self.norm = nn.Conv3d(1, 1, (9, 1, 1), padding=(4, 0, 0)), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, width, rows, columns = x.shape
        mixed = self.first(x).view(batch, 2, width // 2, rows, columns).transpose(1, 2).reshape(x.shape)
        return functional.relu(x + self.norm(self.over(self.second(mixed)[:, None])[:, 0]))


class Steered(nn.Module):
    """ADM and BigGAN: normalised images are scaled and shifted by what a time and a class say; images that grow."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.before, self.said = nn.Conv2d(3, width, 3, padding=1), nn.Linear(128, 128)
        self.norms = nn.ModuleList((nn.GroupNorm(32, width), nn.BatchNorm2d(width, affine=False)))
        self.numbers = nn.ModuleList(nn.Linear(128, 2 * width) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.after = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angles = time[:, None].float() * torch.exp(-9.21 * torch.arange(64) / 64)
        said = functional.silu(self.said(torch.cat((angles.cos(), angles.sin()), 1)))
        x = self.before(x)
        for norm, numbers, layer, grows in zip(self.norms, self.numbers, self.convs, (True, False), strict=True):
            scale, shift = numbers(said)[:, :, None, None].chunk(2, 1)
            y = functional.silu(norm(x) * (1 + scale) + shift)
            x, y = (functional.interpolate(each, scale_factor=2) if grows else each for each in (x, y))
            x = x + layer(y)
        return self.after(x)


class Remembering(nn.Module):
    """ConvLSTM: the states are images, and gates see the cell."""

    def __init__(self, width: int = 32, size: int = 16) -> None:
        super().__init__()
        self.before, self.gates = conv(1, width, 3, 2, nn.ReLU()), nn.Conv2d(2 * width, 4 * width, 3, padding=1)
        self.peeks = nn.ParameterList(nn.Parameter(torch.randn(1, width, size, size) * 0.1) for _ in range(3))
        self.after = nn.ConvTranspose2d(width, 1, 4, 2, 1)

    def forward(self, frames: Tensor) -> Tensor:
        seen = self.before(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        state = cell = torch.zeros_like(seen[:, 0])
        for step in range(frames.shape[1]):
            enter, new, stay, leave = self.gates(torch.cat((seen[:, step], state), 1)).chunk(4, 1)
            kept = torch.sigmoid(stay + self.peeks[0] * cell) * cell
            cell = kept + torch.sigmoid(enter + self.peeks[1] * cell) * torch.tanh(new)
            state = torch.sigmoid(leave + self.peeks[2] * cell) * torch.tanh(cell)
        return self.after(state)


class Joints(nn.Module):
    """ST-GCN and CTR-GCN: joints of a skeleton are mixed by three matrices, by differences for each channel too, and
    windows go over time."""

    def __init__(self, joints: int = 25, width: int = 32) -> None:
        super().__init__()
        self.norm, self.near = nn.BatchNorm1d(3 * joints), nn.Parameter(torch.rand(3, joints, joints))
        self.first, self.over = nn.Conv2d(3, 3 * width, 1), nn.Conv2d(width, width, (9, 1), (2, 1), (4, 0))
        self.asks = nn.ModuleList(nn.Conv2d(width, 8, 1) for _ in range(2))
        self.refine, self.head = nn.Conv2d(8, width, 1), nn.Linear(width, 60)

    def forward(self, x: Tensor) -> Tensor:
        batch, axes, times, joints = x.shape
        x = self.norm(x.permute(0, 3, 1, 2).reshape(batch, joints * axes, times))
        x = x.view(batch, joints, axes, times).permute(0, 2, 3, 1)
        mixed = self.first(x).view(batch, 3, -1, times, joints)
        x = functional.relu(self.over(torch.einsum("nkctv,kvw->nctw", mixed, self.near)))
        one, other = (ask(x).mean(2) for ask in self.asks)
        own = self.refine(torch.tanh(one[..., :, None] - other[..., None, :]))
        return self.head(functional.relu(x + torch.einsum("ncuv,nctv->nctu", own, x)).mean((2, 3)))


class Backwards(nn.Module):
    """WaveGlow: halves of a signal scale and shift each other by gated dilated windows that a spectrum steers."""

    def __init__(self, width: int = 64, flows: int = 2) -> None:
        super().__init__()
        self.width, self.grow = width, nn.ConvTranspose1d(80, width, 16, 8, 4)
        self.mixes = nn.ParameterList(nn.Parameter(torch.linalg.qr(torch.randn(8, 8))[0]) for _ in range(flows))
        self.first = nn.ModuleList(nn.Conv1d(4, width, 1) for _ in range(flows))
        self.wide = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, padding=2, dilation=2) for _ in range(flows))
        self.steers = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(flows))
        self.last = nn.ModuleList(nn.Conv1d(width, 8, 1) for _ in range(flows))

    def forward(self, spectrum: Tensor, x: Tensor) -> Tensor:
        steer = self.grow(spectrum)
        for mix, first, wide, steers, last in zip(
            self.mixes, self.first, self.wide, self.steers, self.last, strict=True
        ):
            kept, moved = x.chunk(2, 1)
            y = wide(first(kept)) + steers(steer)
            y = torch.tanh(y[:, : self.width]) * torch.sigmoid(y[:, self.width :])
            scale, shift = last(y).chunk(2, 1)
            x = functional.conv1d(torch.cat((kept, (moved - shift) / torch.exp(scale)), 1), mix[:, :, None])
        return x.transpose(1, 2).flatten(1)


class EvenAndOdd(nn.Module):
    """SCINet: even and odd samples that scale and shift each other, put together again."""

    def __init__(self, series: int = 7) -> None:
        super().__init__()
        self.sides = nn.ModuleList(
            nn.Sequential(
                nn.ReplicationPad1d(3), nn.Conv1d(series, 4 * series, 5), nn.LeakyReLU(0.01),
                nn.Conv1d(4 * series, series, 3), nn.Tanh(),
            )
            for _ in range(4)
        )  # fmt: skip
        self.ahead = nn.Linear(96, 24)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        even, odd = x[..., ::2], x[..., 1::2]
        odd, even = odd * torch.exp(self.sides[0](even)), even * torch.exp(self.sides[1](odd))
        both = torch.stack((even + self.sides[2](odd), odd - self.sides[3](even)), -1)
        return self.ahead(both.flatten(-2) + x).transpose(1, 2)


MODULES: dict[str, Callable[[], Made]] = {
    "mask_rcnn_heads": lambda: (Regions(), (*picture(), 40 * torch.rand(1, 12, 4).cumsum(2))),
    "corner_net": lambda: (Corners(), picture()),
    "point_rend": lambda: (Uncertain(), picture()),
    "seg_net": lambda: (Unpooled(), picture(64)),
    "ema_net": lambda: (Bases(), picture()),
    "mwcnn": lambda: (Wavelets(), picture(64)),
    "hdr_net": lambda: (Grid(), picture(256)),
    "rand_wire": lambda: (Wired(), picture()),
    "channel_nets": lambda: (Backbone(Channels), picture(96)),
    "adm": lambda: (Steered(), (torch.randn(1, 3, 32, 32), torch.tensor([17]))),
    "conv_lstm": lambda: (Remembering(), (torch.randn(1, 4, 1, 32, 32),)),
    "st_gcn": lambda: (Joints(), (torch.randn(1, 3, 32, 25),)),
    "wave_glow": lambda: (Backwards(), (torch.randn(1, 80, 32), torch.randn(1, 8, 256))),
    "sci_net": lambda: (EvenAndOdd(), (torch.randn(1, 96, 7),)),
}

ONE_FORM = {"seg_net": "dynamo18", "hdr_net": "dynamo18"}
"""Those that torch-script does not export."""

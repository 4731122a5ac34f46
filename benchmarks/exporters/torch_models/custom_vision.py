"""Modules on images and points that people write and deploy themselves."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def upscaler() -> nn.Module:
    """ESPCN: pixels from channels."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
        nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3),
    )  # fmt: skip


class Dense(nn.Module):
    """ESRGAN: dense blocks in residuals, and steps of twice the size by the nearest pixel."""

    def __init__(self, width: int = 32, growth: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(12, width, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Conv2d(width + i * growth, growth if i < 4 else width, 3, padding=1) for i in range(5)
        )
        self.up = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        found = self.first(functional.pixel_unshuffle(image, 2))
        held = [found]
        for layer in self.layers[:-1]:
            held.append(functional.leaky_relu(layer(torch.cat(held, 1)), 0.2))
        found = found + self.layers[-1](torch.cat(held, 1)) * 0.2
        for _ in range(2):
            found = functional.leaky_relu(self.up(functional.interpolate(found, scale_factor=2)), 0.2)
        return self.last(found)


class Shaped(nn.Module):
    """U-Net: halves and doubles, each padded to the size of what it is joined with."""

    def __init__(self, dims: int = 2) -> None:
        super().__init__()
        self.dims = dims
        conv = (nn.Conv2d, nn.Conv3d)[dims - 2]
        norm = (nn.BatchNorm2d, nn.InstanceNorm3d)[dims - 2]
        self.pool = (nn.MaxPool2d, nn.MaxPool3d)[dims - 2](2)

        def block(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(
                conv(a, b, 3, padding=1), norm(b), nn.LeakyReLU(0.01), conv(b, b, 3, padding=1), norm(b), nn.ReLU()
            )

        self.down = nn.ModuleList((block(1, 16), block(16, 32), block(32, 64)))
        self.up = nn.ModuleList((block(96, 32), block(48, 16)))
        self.last = conv(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        held = []
        for layer in self.down:
            x = layer(x if not held else self.pool(x))
            held.append(x)
        held.pop()
        for layer in self.up:
            mode = "bilinear" if self.dims == 2 else "trilinear"
            x, skip = functional.interpolate(x, scale_factor=2, mode=mode, align_corners=True), held.pop()
            pads: list[int] = []
            for axis in range(x.ndim - 1, 1, -1):
                missing = skip.shape[axis] - x.shape[axis]
                pads += [missing // 2, missing - missing // 2]
            x = layer(torch.cat([skip, functional.pad(x, pads)], 1))
        return self.last(x).softmax(1)


class Anchors(nn.Module):
    """YOLOv5: predictions of three scales, decoded by a grid and anchors, as one list."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 16, 32, 64, 128)
        self.stem = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 6 if a == 3 else 3, 2, 2 if a == 3 else 1), nn.BatchNorm2d(b), nn.SiLU())
            for a, b in itertools.pairwise(widths)
        )
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.joined = nn.Conv2d(512, 128, 1)
        self.heads = nn.ModuleList(nn.Conv2d(width, 3 * 15, 1) for width in widths[2:])
        self.register_buffer("anchors", torch.rand(3, 1, 3, 1, 1, 2) * 50)

    def forward(self, image: Tensor) -> Tensor:
        maps = []
        for layer in self.stem:
            image = layer(image)
            maps.append(image)
        pools = [image]
        for _ in range(3):
            pools.append(self.pool(pools[-1]))
        maps[-1] = functional.silu(self.joined(torch.cat(pools, 1)))
        found = []
        for index, (head, held) in enumerate(zip(self.heads, maps[1:], strict=True)):
            batch, _, height, width = held.shape
            x = head(held).view(batch, 3, 15, height, width).permute(0, 1, 3, 4, 2).sigmoid()
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack((columns, rows), -1).view(1, 1, height, width, 2)
            centre, size, rest = x.split((2, 2, 11), -1)
            centre = (centre * 2 - 0.5 + grid) * 2 ** (index + 2)
            size = (size * 2) ** 2 * self.anchors[index]
            found.append(torch.cat((centre, size, rest), -1).view(batch, -1, 15))
        return torch.cat(found, 1)


class Free(nn.Module):
    """YOLOv8: split and joined blocks; distances to the sides of boxes are means over 16 bins."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 4, 1), nn.BatchNorm2d(32), nn.SiLU())
        self.split = nn.Conv2d(32, 64, 1)
        self.inner = nn.Conv2d(32, 32, 3, padding=1)
        self.joined = nn.Conv2d(96, 64, 1)
        self.boxes, self.classes = nn.Conv2d(64, 64, 1), nn.Conv2d(64, 10, 1)
        self.bins = nn.Conv2d(16, 1, 1, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        parts = list(self.split(self.stem(image)).chunk(2, 1))
        parts.append(functional.silu(self.inner(parts[-1])))
        x = functional.silu(self.joined(torch.cat(parts, 1)))
        boxes, classes = self.boxes(x).flatten(2), self.classes(x).flatten(2)
        batch, _, count = boxes.shape
        sides = self.bins(boxes.view(batch, 4, 16, count).transpose(2, 1).softmax(1)).view(batch, 4, count)
        extent = x.shape[-1]
        places = torch.arange(extent) + 0.5
        rows, columns = torch.meshgrid(places, places, indexing="ij")
        centres = torch.stack((columns, rows)).view(1, 2, -1)
        begin, end = sides.chunk(2, 1)
        begin, end = centres - begin, centres + end
        return torch.cat((torch.cat(((begin + end) / 2, end - begin), 1) * 4, classes.sigmoid()), 1)


class Peaks(nn.Module):
    """CenterNet: the highest peaks of a heat map, and what stands there in other maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 4, 3), nn.BatchNorm2d(32), nn.ReLU())
        self.heat, self.size = nn.Conv2d(32, 5, 1), nn.Conv2d(32, 2, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(image)
        heat = self.heat(x).sigmoid()
        heat = heat * (functional.max_pool2d(heat, 3, 1, 1) == heat).float()
        batch, _, height, width = heat.shape
        scores, places = heat.view(batch, -1).topk(20)
        kinds, spots = places // (height * width), places % (height * width)
        rows, columns = spots // width, spots % width
        sizes = self.size(x).flatten(2).transpose(1, 2)
        sizes = sizes.gather(1, spots[..., None].expand(-1, -1, 2))
        return scores, kinds, torch.stack((columns.float(), rows.float()), -1), sizes


class Steps(nn.Module):
    """A part of a diffusion model: groups normalised, an embedding of the time, attention over positions."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2 * width))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(4))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.text = nn.MultiheadAttention(width, 4, kdim=48, vdim=48, batch_first=True)
        self.last = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, noisy: Tensor, step: Tensor, words: Tensor) -> Tensor:
        half = self.time[0].in_features // 2
        angles = step[:, None].float() * torch.exp(-math.log(10000.0) * torch.arange(half) / half)[None]
        scale, shift = self.time(torch.cat((angles.cos(), angles.sin()), -1))[:, :, None, None].chunk(2, 1)
        x = self.first(noisy)
        inner = self.convs[0](functional.silu(self.norms[0](x)))
        x = x + self.convs[1](functional.silu(self.norms[1](inner) * (1 + scale) + shift))
        batch, width, rows, columns = x.shape
        tokens = self.norms[2](x).flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        tokens = tokens + self.text(tokens, words, words, need_weights=False)[0]
        x = x + tokens.transpose(1, 2).view(batch, width, rows, columns)
        x = functional.interpolate(self.norms[3](x), scale_factor=2.0, mode="nearest")
        return self.last(functional.silu(x))


class Styled(nn.Module):
    """StyleGAN2: weights that an image's style scales and normalises, as groups of one convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.style = nn.Linear(32, 24)
        self.weight = nn.Parameter(torch.randn(1, 16, 24, 3, 3))

    def forward(self, image: Tensor, latent: Tensor) -> Tensor:
        batch, width, rows, columns = image.shape
        weight = self.weight * (self.style(latent)[:, None, :, None, None] + 1)
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        images = image.reshape(1, batch * width, rows, columns)
        found = functional.conv2d(images, weight.view(batch * 16, width, 3, 3), padding=1, groups=batch)
        return functional.leaky_relu(found.view(batch, 16, rows, columns), 0.2) * math.sqrt(2)


class Flow(nn.Module):
    """RAFT: correlations of all pairs, sampled around where the flow points, and a convolutional GRU, twice."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 7, 4, 3), nn.InstanceNorm2d(width), nn.ReLU())
        self.gates = nn.Conv2d(width + 9 + 2 + width, 2 * width, 3, padding=1)
        self.candidate = nn.Conv2d(width + 9 + 2 + width, width, 3, padding=1)
        self.delta = nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = self.features(first), self.features(second)
        batch, width, rows, columns = a.shape
        pairs = torch.matmul(a.flatten(2).transpose(1, 2), b.flatten(2)) / math.sqrt(width)
        pairs = pairs.reshape(batch * rows * columns, 1, rows, columns)
        y, x = torch.meshgrid(torch.arange(rows).float(), torch.arange(columns).float(), indexing="ij")
        places = torch.stack((x, y), -1)[None]
        near = torch.stack(torch.meshgrid(torch.arange(-1.0, 2), torch.arange(-1.0, 2), indexing="ij"), -1)
        flow, hidden = torch.zeros_like(a[:, :2]), a.tanh()
        for _ in range(2):
            centre = (places + flow.permute(0, 2, 3, 1)).reshape(-1, 1, 1, 2) + near
            scaled = 2 * centre / torch.tensor([columns - 1.0, rows - 1.0]) - 1
            seen = functional.grid_sample(pairs, scaled, align_corners=True).view(batch, rows, columns, 9)
            given = torch.cat((seen.permute(0, 3, 1, 2), flow, a), 1)
            update, reset = self.gates(torch.cat((hidden, given), 1)).sigmoid().chunk(2, 1)
            hidden = (1 - update) * hidden + update * self.candidate(torch.cat((reset * hidden, given), 1)).tanh()
            flow = flow + self.delta(hidden)
        return flow


class Points(nn.Module):
    """DGCNN: the nearest neighbours of each point, and the largest of what their differences become."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = nn.Sequential(nn.Conv2d(6, 64, 1), nn.BatchNorm2d(64), nn.LeakyReLU(0.2))
        self.head = nn.Linear(64, 40)

    def forward(self, points: Tensor) -> Tensor:
        batch, _, count = points.shape
        squares = points.square().sum(1, keepdim=True)
        distances = 2 * points.transpose(1, 2) @ points - squares - squares.transpose(1, 2)
        near = distances.topk(8, -1)[1] + torch.arange(batch).view(-1, 1, 1) * count
        flat = points.transpose(1, 2).reshape(batch * count, 3)
        neighbours = flat[near.view(-1)].view(batch, count, 8, 3)
        own = flat.view(batch, count, 1, 3).expand(-1, -1, 8, -1)
        x = torch.cat((neighbours - own, own), -1).permute(0, 3, 1, 2)
        return self.head(self.edges(x).amax(-1).amax(-1))


class Codes(nn.Module):
    """A VQ-VAE: the nearest entry of a table in place of each position."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 16, 4, 2, 1))
        self.table = nn.Embedding(64, 16)
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(16, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Sigmoid()
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encode(image).permute(0, 2, 3, 1)
        codes = torch.cdist(x.reshape(-1, 16), self.table.weight).argmin(-1)
        found = self.table(codes).view(x.shape)
        return self.decode(found.permute(0, 3, 1, 2)), codes.view(x.shape[:-1])


class Rays(nn.Module):
    """NeRF: sines of places, a perceptron with a skip, and colours along each ray by what they let through."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(39, 64), nn.Linear(64 + 39, 4)

    def forward(self, places: Tensor, distances: Tensor) -> Tensor:
        waves = [f(places * 2.0**i) for i in range(6) for f in (torch.sin, torch.cos)]
        given = torch.cat([places, *waves], -1)
        found = self.second(torch.cat((functional.relu(self.first(given)), given), -1))
        dense = functional.relu(found[..., 3]) * distances
        opaque, passing = 1 - torch.exp(-dense), torch.exp(dense - torch.cumsum(dense, -1))
        return ((opaque * passing)[..., None] * found[..., :3].sigmoid()).sum(-2)


class Bytes(nn.Module):
    """A camera's image as it comes: bytes, channels last, scaled and normalised; the class comes out as an integer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6(), nn.Conv2d(16, 8, 3, 2, 1))
        self.register_buffer("mean", torch.tensor([123.7, 116.3, 103.5]))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = ((image.float() - self.mean) / 58.0).permute(0, 3, 1, 2)
        x = functional.interpolate(self.net(x), size=image.shape[1:3], mode="bilinear", align_corners=False)
        return x.argmax(1).to(torch.uint8), x.softmax(1)

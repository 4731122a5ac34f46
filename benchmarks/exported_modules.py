"""Modules that people write and deploy themselves, as `exported_models.py` exports them: randomly initialised."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Recogniser(nn.Module):
    """CRNN: the text of a line, by convolutions and a recurrent layer in both directions."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 32, 64, 128)
        self.features = nn.Sequential(*(
            layer for before, width in itertools.pairwise(widths)
            for layer in (nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2))
        ))  # fmt: skip
        self.sequence = nn.LSTM(128 * 4, 64, 2, bidirectional=True)
        self.head = nn.Linear(128, 97)

    def forward(self, image: Tensor) -> Tensor:
        found = self.features(image).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.sequence(found)[0]).log_softmax(-1)


class Speech(nn.Module):
    """Deep Speech 2: convolutions with clipped activations over a spectrum, then GRUs."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 16, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(16), nn.Hardtanh(0, 20),
            nn.Conv2d(16, 16, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(16), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.layers = nn.ModuleList([nn.GRU(16 * 41, 96, batch_first=True), nn.GRU(96, 96, batch_first=True)])
        self.head = nn.Linear(96, 29)

    def forward(self, spectrum: Tensor) -> Tensor:
        found = self.front(spectrum).flatten(1, 2).transpose(1, 2)
        for layer in self.layers:
            found, _ = layer(found)
        return self.head(found)


class WholeNorm(nn.Module):
    """Global layer normalisation of Conv-TasNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(1, width, 1)), nn.Parameter(torch.zeros(1, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((1, 2), keepdim=True)
        variance = (x - mean).pow(2).mean((1, 2), keepdim=True)
        return self.scale * (x - mean) / (variance + 1e-8).sqrt() + self.shift


class Separator(nn.Module):
    """Conv-TasNet: masks of a learned spectrum by dilated convolutions, and the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, 64, 16, 8), nn.ConvTranspose1d(64, 1, 16, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(64, 96, 1), nn.PReLU(), WholeNorm(96),
                nn.Conv1d(96, 96, 3, padding=2**index, dilation=2**index, groups=96), nn.PReLU(), WholeNorm(96),
                nn.Conv1d(96, 64, 1),
            ) for index in range(4)
        )  # fmt: skip
        self.masks = nn.Conv1d(64, 128, 1)

    def forward(self, sound: Tensor) -> Tensor:
        found = code = self.encode(sound).relu()
        for block in self.blocks:
            found = found + block(found)
        masks = self.masks(found).sigmoid().view(1, 2, 64, -1)
        return self.decode((masks * code[:, None]).flatten(0, 1)).view(1, 2, -1)


class Denoiser(nn.Module):
    """Demucs: strided convolutions with gated units, an LSTM, and transposed convolutions that add what was left."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 24, 48)
        pairs = list(itertools.pairwise(widths))
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 8, 4), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)) for a, b in pairs
        )
        self.middle = nn.LSTM(48, 48, 2)
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv1d(b, 2 * b, 1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4)) for a, b in pairs[::-1]
        )

    def forward(self, sound: Tensor) -> Tensor:
        spread = sound.std(-1, keepdim=True) + 1e-3
        found, left = sound / spread, []
        for layer in self.down:
            found = layer(found)
            left.append(found)
        found = self.middle(found.permute(2, 0, 1))[0].permute(1, 2, 0)
        for layer in self.up:
            passed = left.pop()
            found = layer(found + passed[..., : found.shape[-1]])
        return found * spread


class Vocoder(nn.Module):
    """HiFi-GAN: transposed convolutions with weight normalisation, and stacks of dilated ones in parallel."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.first = norm(nn.Conv1d(80, 64, 7, padding=3))
        self.up = nn.ModuleList(norm(nn.ConvTranspose1d(64 >> i, 32 >> i, 16, 8, 4)) for i in range(2))

        def branch(width: int, k: int) -> nn.ModuleList:
            return nn.ModuleList(norm(nn.Conv1d(width, width, k, dilation=d, padding=d * (k - 1) // 2)) for d in (1, 3))

        self.stacks = nn.ModuleList(nn.ModuleList(branch(32 >> i, k) for k in (3, 7)) for i in range(2))
        self.last = norm(nn.Conv1d(16, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        found = self.first(mel)
        for up, stacks in zip(self.up, self.stacks, strict=True):
            found = up(functional.leaky_relu(found, 0.1))
            total = torch.zeros_like(found)
            for stack in stacks:
                branch = found
                for layer in stack:
                    branch = branch + layer(functional.leaky_relu(branch, 0.1))
                total = total + branch
            found = total / len(stacks)
        return torch.tanh(self.last(functional.leaky_relu(found)))


class Waves(nn.Module):
    """WaveNet: causal dilated convolutions whose tanh is gated."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 32, 1)
        self.gates = nn.ModuleList(nn.Conv1d(32, 64, 2, dilation=2**i) for i in range(5))
        self.outs = nn.ModuleList(nn.Conv1d(32, 64, 1) for _ in range(5))
        self.last = nn.Conv1d(32, 256, 1)

    def forward(self, sound: Tensor) -> Tensor:
        found, skipped = self.first(sound), 0.0
        for gate, out in zip(self.gates, self.outs, strict=True):
            padded = functional.pad(found, (gate.dilation[0], 0))
            filtered, opening = gate(padded).chunk(2, 1)
            passed, skip = out(filtered.tanh() * opening.sigmoid()).chunk(2, 1)
            found, skipped = found + passed, skipped + skip
        return self.last(functional.relu(skipped))


class Commands(nn.Module):
    """Keyword spotting from the waveform itself: a short-time spectrum, mel bands, logarithms and a small CNN."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("bands", torch.rand(201, 40))
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 12),
        )  # fmt: skip

    def forward(self, sound: Tensor) -> Tensor:
        spectrum = torch.stft(sound, 400, 160, window=self.window, return_complex=True)
        power = torch.view_as_real(spectrum).square().sum(-1)
        mel = (power.transpose(1, 2) @ self.bands).clamp(min=1e-6).log10()
        mel = torch.maximum(mel, mel.amax((1, 2), keepdim=True) - 8.0)
        return self.net(((mel + 4.0) / 4.0)[:, None])


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


class Messages(nn.Module):
    """A graph attention layer: edges as indices, shares of each node's edges by scattered sums."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inner, self.score = nn.Linear(16, width), nn.Linear(2 * width, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        x = self.inner(nodes)
        source, target = edges[0], edges[1]
        score = functional.leaky_relu(self.score(torch.cat((x[source], x[target]), -1)), 0.2).clamp(max=20).exp()
        total = torch.zeros(x.shape[0], 1).index_add(0, target, score)
        found = torch.zeros_like(x).index_add(0, target, x[source] * score / (total[target] + 1e-6))
        return functional.elu(found)


class Clicks(nn.Module):
    """DLRM: embeddings of categories and numbers, products of all pairs of them, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(100, 16, mode="sum") for _ in range(4))
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(16 + 10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.tril_indices(5, 5, -1))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        found = torch.stack([dense, *(table(categories[:, i]) for i, table in enumerate(self.tables))], 1)
        products = torch.bmm(found, found.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((dense, products), 1))


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


class Selective(nn.Module):
    """Mamba's block: a causal depthwise convolution and a selective scan, step by step."""

    def __init__(self, width: int = 32, state: int = 8) -> None:
        super().__init__()
        self.state = state
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.conv = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.parts = nn.Linear(width, width + 2 * state)
        self.decay = nn.Parameter(torch.rand(width, state))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        x, gate = self.inner(x).chunk(2, -1)
        x = functional.silu(self.conv(x.transpose(1, 2))[..., :length]).transpose(1, 2)
        delta, into, out = self.parts(x).split((x.shape[-1], self.state, self.state), -1)
        delta = functional.softplus(delta)
        kept = torch.exp(-delta[..., None] * self.decay)
        added = delta[..., None] * into[:, :, None] * x[..., None]
        state, found = torch.zeros_like(added[:, 0]), []
        for step in range(length):
            state = kept[:, step] * state + added[:, step]
            found.append((state * out[:, step, None]).sum(-1))
        return self.outer(torch.stack(found, 1) * functional.silu(gate))


class Decoder(nn.Module):
    """One step of a decoder with rotary angles, grouped heads and caches that go in and come out."""

    def __init__(self, width: int = 64, heads: int = 4, shared: int = 2) -> None:
        super().__init__()
        self.heads, self.shared, self.extent = heads, shared, width // heads
        self.norm = nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, shared * self.extent, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width, bias=False)

    def turned(self, x: Tensor, places: Tensor) -> Tensor:
        half = self.extent // 2
        angles = places[:, None, :, None].float() * 10000.0 ** (-torch.arange(half) / half)
        a, b = x.chunk(2, -1)
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)

    def forward(self, x: Tensor, places: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        batch, length, width = x.shape
        given = self.norm(x)

        def parts(layer: nn.Linear, heads: int) -> Tensor:
            return layer(given).view(batch, length, heads, self.extent).transpose(1, 2)

        q, k = self.turned(parts(self.q, self.heads), places), self.turned(parts(self.k, self.shared), places)
        keys, values = torch.cat((keys, k), 2), torch.cat((values, parts(self.v, self.shared)), 2)
        wide = [each.repeat_interleave(self.heads // self.shared, 1) for each in (keys, values)]
        found = functional.scaled_dot_product_attention(q, *wide)
        return x + self.out(found.transpose(1, 2).reshape(batch, length, width)), keys, values


class Experts(nn.Module):
    """A mixture of experts, all of them computed and those that were not chosen left out."""

    def __init__(self, width: int = 32, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 64) / 6)
        self.down = nn.Parameter(torch.randn(experts, 64, width) / 8)

    def forward(self, x: Tensor) -> Tensor:
        share, chosen = self.router(x).softmax(-1).topk(2, -1)
        weights = torch.zeros_like(self.router(x)).scatter(-1, chosen, share / share.sum(-1, keepdim=True))
        every = torch.einsum("bteh,ehd->bted", functional.silu(torch.einsum("btd,edh->bteh", x, self.up)), self.down)
        return torch.einsum("bted,bte->btd", every, weights)


class Forecast(nn.Module):
    """Windows of many series: normalised by their own mean, patched, seen by an encoder, and scaled back."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 64)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", batch_first=True), 2)
        self.head = nn.Linear(11 * 64, 24)

    def forward(self, series: Tensor) -> Tensor:
        mean, spread = series.mean(1, keepdim=True), (series.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        patches = ((series - mean) / spread).permute(0, 2, 1).unfold(-1, 16, 8)
        batch, count, length, _ = patches.shape
        found = self.encoder(self.inner(patches).view(batch * count, length, 64))
        return self.head(found.reshape(batch, count, -1)).permute(0, 2, 1) * spread + mean


class Rays(nn.Module):
    """NeRF: sines of places, a perceptron with a skip, and colours along each ray by what they let through."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(39, 64), nn.Linear(64 + 39, 4)

    def forward(self, places: Tensor, distances: Tensor) -> Tensor:
        waves = [f(places * 2.0**i) for i in range(6) for f in (torch.sin, torch.cos)]
        given = torch.cat([places, *waves], -1)
        found = self.second(torch.cat((functional.relu(self.first(given)), given), -1))
        opaque = 1 - torch.exp(-functional.relu(found[..., 3]) * distances)
        passing = torch.cumprod(torch.cat((torch.ones_like(opaque[:, :1]), 1 - opaque + 1e-10), -1), -1)[:, :-1]
        return ((opaque * passing)[..., None] * found[..., :3].sigmoid()).sum(1)


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


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape)


MODULES: dict[str, Callable[[], Made]] = {
    "crnn": lambda: (Recogniser(), (randn(1, 1, 32, 160),)),
    "deep_speech": lambda: (Speech(), (randn(1, 1, 161, 120),)),
    "conv_tasnet": lambda: (Separator(), (randn(1, 1, 3200),)),
    "demucs": lambda: (Denoiser(), (randn(1, 1, 1364),)),
    "hifi_gan": lambda: (Vocoder(), (randn(1, 80, 20),)),
    "wavenet": lambda: (Waves(), (randn(1, 1, 400),)),
    "keywords": lambda: (Commands(), (randn(1, 16000),)),
    "espcn": lambda: (upscaler(), (randn(1, 1, 48, 48),)),
    "esrgan": lambda: (Dense(), (randn(1, 3, 48, 48),)),
    "unet": lambda: (Shaped(), (randn(1, 1, 70, 90),)),
    "unet_3d": lambda: (Shaped(3), (randn(1, 1, 18, 30, 34),)),
    "yolo_v5": lambda: (Anchors(), (randn(1, 3, 128, 128),)),
    "yolo_v8": lambda: (Free(), (randn(1, 3, 128, 128),)),
    "center_net": lambda: (Peaks(), (randn(1, 3, 128, 128),)),
    "diffusion": lambda: (Steps(), (randn(1, 4, 16, 16), torch.tensor([17]), randn(1, 10, 48))),
    "style_gan": lambda: (Styled(), (randn(1, 24, 16, 16), randn(1, 32))),
    "raft": lambda: (Flow(), (randn(1, 3, 64, 96), randn(1, 3, 64, 96))),
    "dgcnn": lambda: (Points(), (randn(1, 3, 128),)),
    "graph_attention": lambda: (Messages(), (randn(40, 16), torch.randint(0, 40, (2, 100)))),
    "dlrm": lambda: (Clicks(), (randn(1, 13), torch.randint(0, 100, (1, 4, 3)))),
    "vq_vae": lambda: (Codes(), (randn(1, 3, 32, 32),)),
    "mamba": lambda: (Selective(), (randn(1, 12, 32),)),
    "decoder_step": lambda: (
        Decoder(), (randn(1, 1, 64), torch.tensor([[9]]), randn(1, 2, 9, 16), randn(1, 2, 9, 16))
    ),
    "experts": lambda: (Experts(), (randn(1, 10, 32),)),
    "forecast": lambda: (Forecast(), (randn(1, 96, 7),)),
    "nerf": lambda: (Rays(), (randn(32, 24, 3), torch.rand(32, 24))),
    "camera": lambda: (Bytes(), (torch.randint(0, 256, (1, 64, 96, 3), dtype=torch.uint8),)),
}  # fmt: skip

ONE_FORM = dict.fromkeys(("keywords", "graph_attention", "decoder_step", "nerf", "forecast"), "dynamo18")
"""Those that torch-script does not export, or not as ONNX defines it."""

"""Modules on rows that people write and deploy themselves: sound, lines of text, words, series, graphs, tables."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional


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


class Messages(nn.Module):
    """A graph attention layer: edges as indices, shares of each node's edges by scattered sums."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inner, self.score = nn.Linear(16, width), nn.Linear(2 * width, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        x = self.inner(nodes[0])
        source, target = edges[0, 0], edges[0, 1]
        score = functional.leaky_relu(self.score(torch.cat((x[source], x[target]), -1)), 0.2).clamp(max=20).exp()
        total = torch.zeros(x.shape[0], 1).index_add(0, target, score)
        found = torch.zeros_like(x).index_add(0, target, x[source] * score / (total[target] + 1e-6))
        return functional.elu(found)[None]


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

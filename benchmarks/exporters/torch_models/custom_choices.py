"""Networks of objects, tables, texts, clicks, series and voices: slots, sparse choices, retention, transducers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exporters.torch_models.custom_folding import RESIDUES, Made, ids, masked


class Slots(nn.Module):
    """Slots compete for pixels: a softmax over slots, a weighted mean over pixels, a GRU cell, three times."""

    def __init__(self, width: int = 64, slots: int = 7) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, width, 5, 2, 2))
        self.start = nn.Parameter(torch.randn(1, slots, width))
        self.images, self.slots, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.cell = nn.GRUCell(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, width))

    def forward(self, image: Tensor) -> Tensor:
        x = self.images(self.encoder(image).flatten(2).transpose(1, 2))
        k, v, slots = self.k(x), self.v(x), self.start
        for _ in range(3):
            q = self.q(self.slots(slots)) * 0.125
            weights = torch.softmax(k @ q.transpose(1, 2), -1) + 1e-8
            weights = weights / weights.sum(1, keepdim=True)
            updates = weights.transpose(1, 2) @ v
            slots = self.cell(updates.flatten(0, 1), slots.expand_as(updates).flatten(0, 1)).view_as(updates)
            slots = slots + self.mlp(self.last(slots))
        return slots


def sparsemax(scores: Tensor) -> Tensor:
    """The nearest point of the simplex: a sort, running sums, and a threshold."""
    ordered = torch.sort(scores, -1, descending=True).values
    sums = ordered.cumsum(-1) - 1
    ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    support = (ranks * ordered > sums).to(scores.dtype).sum(-1, keepdim=True)
    threshold = sums.gather(-1, support.to(torch.int64) - 1) / support
    return torch.relu(scores - threshold)


class TabNet(nn.Module):
    """Steps that each choose columns of a table by a sparsemax (TabNet)."""

    def __init__(self, columns: int = 54, width: int = 16, steps: int = 3) -> None:
        super().__init__()
        self.norm, self.width = nn.BatchNorm1d(columns), width
        self.shared = nn.Linear(columns, 4 * width, bias=False)
        self.own = nn.ModuleList([nn.Linear(2 * width, 4 * width, bias=False) for _ in range(steps + 1)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(4 * width) for _ in range(2 * steps + 2)])
        self.choices = nn.ModuleList([nn.Sequential(nn.Linear(width, columns, bias=False), nn.BatchNorm1d(columns))
                                      for _ in range(steps)])  # fmt: skip
        self.head = nn.Linear(width, 7)

    def transformed(self, x: Tensor, step: int) -> Tensor:
        y = functional.glu(self.norms[2 * step](self.shared(x)))
        return (y + functional.glu(self.norms[2 * step + 1](self.own[step](y)))) * 0.5**0.5

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        prior, total = torch.ones_like(x), torch.zeros(())
        attended = self.transformed(x, 0)[:, self.width :]
        for step, choice in enumerate(self.choices, 1):
            mask = sparsemax(choice(attended) * prior)
            prior = prior * (1.3 - mask)
            decided, attended = self.transformed(mask * x, step).split(self.width, -1)
            total = total + torch.relu(decided)
        return self.head(total)


class Retention(nn.Module):
    """Scores that decay with the distance, without a softmax; heads are normalised and gated (RetNet)."""

    def __init__(self, width: int = 128, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.g, self.out = (nn.Linear(width, width, bias=False) for _ in range(5))
        self.group = nn.GroupNorm(heads, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.register_buffer("decay", torch.log(1 - 2.0 ** (-5 - torch.arange(heads).float())))

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(x)
        q, k, v = (f(z).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        places = torch.arange(x.shape[1])
        back = (places[:, None] - places[None]).float()
        weights = torch.where(back >= 0, torch.exp(back * self.decay[:, None, None]), torch.zeros(()))
        weights = weights / weights.sum(-1, keepdim=True).sqrt()
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 * weights
        scores = scores / scores.abs().sum(-1, keepdim=True).clamp(min=1)
        found = (scores @ v).transpose(1, 2).flatten(2)
        found = self.group(found.flatten(0, 1)).view_as(x)
        x = x + self.out(functional.silu(self.g(z)) * found)
        return x + self.mlp(self.last(x))


class Joiner(nn.Module):
    """The joint network of a transducer: every frame with every token (RNN-T)."""

    def __init__(self, width: int = 128, inner: int = 96, words: int = 65) -> None:
        super().__init__()
        self.frames, self.tokens = nn.Linear(width, inner), nn.Linear(width, inner)
        self.embedded, self.predictor = nn.Embedding(words, width), nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(inner, words)

    def forward(self, frames: Tensor, tokens: Tensor) -> Tensor:
        predicted, _ = self.predictor(self.embedded(tokens))
        joint = torch.tanh(self.frames(frames)[:, :, None] + self.tokens(predicted)[:, None])
        return torch.log_softmax(self.out(joint), -1)


class Splade(nn.Module):
    """Weights of all words of a text: the largest of log(1 + relu(scores)) over its tokens; and MaxSim of two texts."""

    def __init__(self, width: int = 128, words: int = 511) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 192, 0.0, "gelu", batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, query: Tensor, text: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.layer(self.words(text), src_key_padding_mask=mask == 0)
        weights = (torch.log1p(torch.relu(self.head(x))) * mask[..., None]).amax(1)
        q, d = (functional.normalize(each, dim=-1) for each in (self.layer(self.words(query)), x))
        scores = (q @ d.transpose(1, 2)).masked_fill(mask[:, None] == 0, -1e4)
        return weights, scores.amax(-1).sum(-1)


class Interests(nn.Module):
    """Clicks weighed by a small network of click and item, crossed features and experts (DIN, CIN, DCN, MMoE)."""

    def __init__(self, width: int = 32, fields: int = 11) -> None:
        super().__init__()
        self.items, self.fields = nn.Embedding(1000, width), nn.Embedding(500, width)
        self.weigh = nn.Sequential(nn.Linear(4 * width, 36), nn.PReLU(), nn.Linear(36, 1))
        self.crossed = nn.ModuleList([nn.Conv1d(fields * each, 24, 1) for each in (fields, 24)])
        flat = (fields + 2) * width
        self.cross = nn.ModuleList([nn.Linear(flat, flat) for _ in range(2)])
        self.experts = nn.Parameter(torch.randn(4, flat + 48, 64) * 0.05)
        self.gates = nn.ModuleList([nn.Linear(flat + 48, 4) for _ in range(2)])
        self.towers = nn.ModuleList([nn.Linear(64, 1) for _ in range(2)])

    def forward(self, item: Tensor, clicks: Tensor, fields: Tensor) -> Tensor:
        target, history, features = self.items(item), self.items(clicks), self.fields(fields)
        wide = target.expand_as(history)
        weights = self.weigh(torch.cat((history, wide, history - wide, history * wide), -1))
        weights = weights.masked_fill(clicks[..., None] == 0, 0.0)
        interest = (weights * history).sum(1, keepdim=True)
        first = torch.cat((target, interest, features), 1).flatten(1)
        x = first
        for layer in self.cross:
            x = first * layer(x) + x
        hidden, sums = features, []
        for layer in self.crossed:
            outer = torch.einsum("bhd,bmd->bhmd", hidden, features).flatten(1, 2)
            hidden = torch.relu(layer(outer))
            sums.append(hidden.sum(-1))
        x = torch.cat((x, *sums), -1)
        experts = torch.relu(torch.einsum("bi,eio->beo", x, self.experts))
        found = [tower((torch.softmax(gate(x), -1)[..., None] * experts).sum(1))
                 for gate, tower in zip(self.gates, self.towers, strict=True)]  # fmt: skip
        return torch.sigmoid(torch.cat(found, -1))


class Variates(nn.Module):
    """Series less their moving mean, whose variates are tokens, standardised in front and back behind (iTransformer,
    DLinear, RevIN)."""

    def __init__(self, length: int = 96, horizon: int = 24, width: int = 128) -> None:
        super().__init__()
        self.embed, self.project = nn.Linear(length, width), nn.Linear(width, horizon)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(width, 2, 192, 0.0, "gelu", batch_first=True)
                                     for _ in range(2)])  # fmt: skip
        self.slow, self.fast = nn.Linear(length, horizon), nn.Linear(length, horizon)
        self.smooth = nn.AvgPool1d(25, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        spread = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        z = ((x - mean) / spread).transpose(1, 2)
        slow = self.smooth(torch.cat((z[..., :1].expand(-1, -1, 12), z, z[..., -1:].expand(-1, -1, 12)), -1))
        y = self.embed(z)
        for layer in self.layers:
            y = layer(y)
        y = self.project(y) + self.slow(slow) + self.fast(z - slow)
        return y.transpose(1, 2) * spread + mean


class Stacked(nn.Module):
    """Tacotron's decoder for four frames: two LSTM cells, and attention that knows where it was."""

    def __init__(self, width: int = 128, bands: int = 20) -> None:
        super().__init__()
        self.bands = bands
        self.front = nn.Sequential(nn.Linear(bands, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.first, self.second = nn.LSTMCell(64 + width, width), nn.LSTMCell(2 * width, width)
        self.query, self.memory = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False)
        self.places, self.place = nn.Conv1d(2, 8, 31, padding=15, bias=False), nn.Linear(8, 64, bias=False)
        self.energy, self.frame, self.stop = nn.Linear(64, 1), nn.Linear(2 * width, bands), nn.Linear(2 * width, 1)

    def forward(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        batch, length, width = memory.shape
        frame = memory.new_zeros(batch, self.bands)
        a = b = (memory.new_zeros(batch, width), memory.new_zeros(batch, width))
        weights, total, context = memory.new_zeros(batch, length), memory.new_zeros(batch, length), memory[:, 0] * 0
        known, frames, stops = self.memory(memory), [], []
        for _ in range(4):
            a = self.first(torch.cat((self.front(frame), context), -1), a)
            seen = self.place(self.places(torch.stack((weights, total), 1)).transpose(1, 2))
            energy = self.energy(torch.tanh(self.query(a[0])[:, None] + known + seen))[..., 0]
            weights = torch.softmax(energy, -1)
            total = total + weights
            context = (weights[:, None] @ memory)[:, 0]
            b = self.second(torch.cat((a[0], context), -1), b)
            both = torch.cat((b[0], context), -1)
            frame = self.frame(both)
            frames.append(frame)
            stops.append(torch.sigmoid(self.stop(both)))
        return torch.stack(frames, 1), torch.cat(stops, -1)


MODULES: dict[str, Callable[[], Made]] = {
    "slot_attention": lambda: (Slots(), (torch.rand(1, 3, 60, 60),)),
    "tab_net": lambda: (TabNet(), (torch.randn(1, 54),)),
    "retention": lambda: (nn.Sequential(Retention(), Retention()), (torch.randn(1, 61, 128),)),
    "rnnt_joint": lambda: (Joiner(), (torch.randn(1, 75, 128), ids(65, 11))),
    "splade": lambda: (Splade(), (ids(511, 13), ids(511, RESIDUES), masked())),
    "interests": lambda: (Interests(), (ids(1000, 1), ids(1000, 21), ids(500, 11))),
    "variates": lambda: (Variates(), (torch.randn(1, 96, 21),)),
    "tacotron": lambda: (Stacked(), (torch.randn(1, RESIDUES, 128),)),
}  # fmt: skip

"""Engines of encoders beside what a PyTorch user would run, on one GPU.

    python benchmarks/peers/encoder_peers.py FOLDER build             # engines, from the locks where there are some
    python benchmarks/peers/encoder_peers.py FOLDER measure           # again until it says that no row is left
    python benchmarks/peers/encoder_peers.py FOLDER close             # anywhere: writes results/encoder_peers.json
    python benchmarks/peers/encoder_peers.py FOLDER close --printed LOG... --head FILE  # where the rows' files are gone
    python benchmarks/peers/encoder_peers.py FOLDER all               # one after the other

A row is a recipe and a batch. Both sides read the same token ids (int64, no padding mask) or fp16 images, compute in
fp16 with fp32 sums, write fp16, and have the same seeded weights. Peers are transformers' and torchvision's models
(`published_encoders.py`): eager, eager in a CUDA graph, and torch.compile reduce-overhead with and without frozen
weights. They run in turns with the engine, and their outputs are compared. Each row is written as it is done. `measure`
begins no row that may not be done within `--limit` seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers import peer_rows
from benchmarks.peers.peer_rows import PeerRow, summary

PEERS = {
    "published": "EAGER",
    "published-graph": "GRAPH",
    "published-compiled": "COMPILED",
    "published-frozen": "FROZEN",
}
"""Peers, and what each is called in `published_encoders`."""
COMPILING = ("published-compiled", "published-frozen")


@dataclass(frozen=True)
class Row(PeerRow):
    compiles: float = 45
    """Seconds that a peer that compiles may take."""

    def limit(self, peers: Sequence[str]) -> float:
        """Seconds that it may take beside these peers."""
        return 30 + self.compiles * sum(peer in COMPILING for peer in peers)


ROWS = (
    Row("bert_base", 32, 1.35), Row("bert_base", 1, 0.40), Row("vit_b16", 32, 2.2), Row("vit_b16", 1, 0.35),
    Row("bert_base_40", 32, 0.65), Row("bert_base_384", 32, 4.2), Row("bert_large", 32, 14.2, 105),
    Row("distilbert", 32), Row("clip_vision", 32), Row("whisper_tiny_encoder", 32), Row("bert_base_384", 1),
    Row("bert_large", 1, None, 105), Row("distilbert", 1), Row("clip_vision", 1), Row("whisper_tiny_encoder", 1),
)  # fmt: skip


def given_types(model: str) -> str:
    """What the engine of a model reads and writes: fp16 ids' results, or images as the peers have them."""
    return "dtype: fp16" + (", layout: channels_last" if model in ("vit_b16", "clip_vision") else "")


def build(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    return peer_rows.build(
        arguments, rows, lambda model: peer_rows.locked_recipe(arguments, rows, model, given_types(model))
    )


def measure(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    peer_rows.offer_peers(arguments.folder, "published_encoders", PEERS)
    peers = arguments.peers
    packages = ("torch", "transformers", "torchvision")
    return peer_rows.measure(arguments, rows, lambda row: peers, lambda row: row.limit(peers), *packages)


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose fastest peer is known. Eager has attention kernels of its own and is the fastest for long sequences:
    without it no peer is called the fastest."""
    if "published" in row["contestants"] or "published" in row.get("earlier", {}):
        return row
    return row | {"best_peer": None, "speedup": None}


def close(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """The table of all rows that are measured, with the geometric mean of those with an aim, and of all."""
    found = peer_rows.measured(arguments, rows)
    lines = [compared(each) for each in peer_rows.lines_of(arguments, "encoder_peers", rows, found)]
    aims = [each for each in lines if each["wanted_ms"] is not None]
    summaries = {"aims": summary(aims), "all": summary(lines)}
    first = peer_rows.head_of(arguments, found)
    return peer_rows.write(arguments, "encoder_peers", first, summaries, rows, lines)


def every_stage(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """All stages, whatever became of the one before."""
    return max([stage(arguments, rows) for stage in (build, measure, close)])


def main() -> int:
    parser = peer_rows.parser_of(__doc__, "build", "measure", "close", "all")
    parser.add_argument("--rows", nargs="+", choices=[row.name for row in ROWS], metavar="ROW", help="only these")
    parser.add_argument("--peers", nargs="+", choices=tuple(PEERS), default=tuple(PEERS), help="only beside these")
    arguments = peer_rows.parsed(parser)
    rows = [row for row in ROWS if arguments.rows is None or row.name in arguments.rows]
    stages = {"build": build, "measure": measure, "close": close, "all": every_stage}
    return stages[arguments.stage](arguments, rows)


if __name__ == "__main__":
    sys.exit(main())

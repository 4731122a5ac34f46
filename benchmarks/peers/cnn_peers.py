"""Engines of CNNs beside what a PyTorch user would run, on one GPU, as `bolt-build bench --against` measures them.

    python benchmarks/peers/cnn_peers.py FOLDER build  # engines that read what the peers read, from the locks
    python benchmarks/peers/cnn_peers.py FOLDER measure               # again until it says that no row is left
    python benchmarks/peers/cnn_peers.py FOLDER close                 # anywhere: writes results/cnn_peers.json
    python benchmarks/peers/cnn_peers.py FOLDER build --table dense_peers     # and so on: the README's models

The first table has CNNs with grouped, depthwise and dense blocks, the other those whose convolutions are dense.

A row is a model and a batch. Both sides read fp16 channels-last images, compute in fp16 with fp32 sums, and have the
same seeded weights: peers are the recipe's ONNX model in torch (`bolt-build bench --against`), run in turns with the
engine on the same inputs, and their outputs are compared. `measure` begins no row that may not be done within `--limit`
seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers import peer_rows
from benchmarks.peers.peer_rows import PeerRow as Row
from benchmarks.peers.peer_rows import summary

OVERHEAD, AUTOTUNE = "torch-reduce-overhead", "torch-compile"
PEERS = ("torch", "torch-graph", OVERHEAD)
LIMITS = {False: 75.0, True: 400.0}
"""Seconds that a row may take, without max-autotune and with it: peers compile."""


ROWS = (
    Row("mobilenet_v2", 32, 0.42), Row("efficientnet_b0", 32, 0.70), Row("resnext50_32x4d", 32, 0.95),
    Row("densenet121", 32, 1.25), Row("convnext_tiny", 32, 1.25), Row("mobilenet_v3_small", 32),
    Row("mobilenet_v2", 1), Row("efficientnet_b0", 1), Row("resnext50_32x4d", 1), Row("densenet121", 1),
    Row("convnext_tiny", 1), Row("mobilenet_v3_small", 1),
)  # fmt: skip

DENSE = (
    Row("resnet50", 1), Row("resnet50", 32), Row("resnet50", 128), Row("resnet18", 32), Row("vgg16", 32),
    Row("repvgg_a0", 32),
)  # fmt: skip
TABLES = {"cnn_peers": ROWS, "dense_peers": DENSE}


def build(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    io = "dtype: fp16, layout: channels_last"
    return peer_rows.build(arguments, rows, lambda model: peer_rows.locked_recipe(arguments, rows, model, io))


def measure(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    peers = tuple(arguments.peers)
    return peer_rows.measure(arguments, rows, lambda _: peers, lambda _: LIMITS[AUTOTUNE in peers], "torch")


def close(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """The table of all rows that are measured, with the geometric mean of each batch's."""
    found = peer_rows.measured(arguments, rows)
    lines = peer_rows.lines_of(arguments, arguments.table, rows, found)
    summaries = {"all": summary(lines)} | {
        f"b{batch}": summary([each for each in lines if each["batch"] == batch])
        for batch in sorted({each["batch"] for each in lines})
    }
    return peer_rows.write(arguments, arguments.table, peer_rows.head_of(arguments, found), summaries, rows, lines)


def main() -> int:
    parser = peer_rows.parser_of(__doc__, "build", "measure", "close")
    parser.add_argument("--table", choices=tuple(TABLES), default="cnn_peers")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="only these, resnet50_b32 say")
    parser.add_argument("--peers", nargs="+", choices=(*PEERS, AUTOTUNE), default=PEERS, help="measure: beside these")
    arguments = peer_rows.parsed(parser)
    rows = [row for row in TABLES[arguments.table] if arguments.rows is None or row.name in arguments.rows]
    return {"build": build, "measure": measure, "close": close}[arguments.stage](arguments, rows)


if __name__ == "__main__":
    sys.exit(main())

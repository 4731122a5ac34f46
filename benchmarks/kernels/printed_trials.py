"""Kernels that were written for kinds of layers, from lines that trials of them printed on a GPU: each by itself, over
buffers beyond L2, compared with the layer's reference or with the first kernel of it.

    python benchmarks/kernels/printed_trials.py --gpu NAME FILE...     # writes results/printed_trials.json

A line is `number| layer | kernel | us | error | message | predicted us`. Layers are those of NAMES; what a layer's
kernels are called apart is their family's `kind` or `algorithm`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record

NORMS = {
    "g320_64": "GroupNorm, 320 channels, 64x64, batch 32", "g640_32": "GroupNorm, 640 channels, 32x32, batch 32",
    "g1280_16": "GroupNorm, 1280 channels, 16x16, batch 32", "i128_128": "instances, 128 channels, 128x128, batch 32",
    "i256_64": "instances, 256 channels, 64x64, batch 32", "i64_56": "instances, 64 channels, 56x56, batch 32",
    "b256_64_56": "instances, 64 channels, 56x56, batch 256", "ln16384": "rows of 16384, 2048 of them",
    "pool128": "whole images, 128 channels, 28x28, batch 32", "g1_320_64": "GroupNorm, 320 channels, 64x64, batch 1",
    "g2_320_64": "GroupNorm, 320 channels, 64x64, batch 2", "g2_640_32": "GroupNorm, 640 channels, 32x32, batch 2",
    "g2_1280_16": "GroupNorm, 1280 channels, 16x16, batch 2",
}  # fmt: skip
VOLUMES = {
    "x112 28 b16": "112 channels, 16x28x28, 3x3x3, batch 16", "x112 28 b1": "112 channels, 16x28x28, 3x3x3, batch 1",
    "x56 56 b4": "56 channels, 16x56x56, 3x3x3, batch 4", "x216 14 b16": "216 channels, 16x14x14, 3x3x3, batch 16",
    "s122 b8": "64 channels, 16x56x56, 3x3x3, strides 1 2 2, batch 8",
    "med 555 b2": "32 channels, 32x64x64, 5x5x5, batch 2", "533 res": "64 channels, 16x28x28, 5x3x3, batch 8",
}  # fmt: skip
MASKS = {
    "m-384 random": "32 x 16 x 384 x 64", "m-1024 zeros": "8 x 16 x 1024 x 64", "m-512 b8 zeros": "8 x 12 x 512 x 64",
    "m-128 random": "32 x 12 x 128 x 64", "llama masked keys": "8 x 32 x 256 x 64 over 8, causal",
}  # fmt: skip
NAMES = {"norms": NORMS, "volumes": VOLUMES, "masks": MASKS}
"""Groups of layers; of each layer what it is by what it was called where it was printed."""


def kind_of(kernel: str) -> str:
    words = dict(word.partition("=")[::2] for word in kernel.split()[1:])
    return words.get("kind") or words["algorithm"]


def rows_of(files: list[Path]) -> tuple[dict[str, Any], int, int]:
    """By group and layer the kernels that were timed; how many lines there are, and how many were wrong."""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {group: {} for group in NAMES}
    tried = wrong = 0
    for line in (line for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        _, label, kernel, us, error, message, predicted = (part.strip() for part in line.split("|"))
        tried += 1
        wrong += bool(message)
        for group, names in NAMES.items():
            if label in names and us != "None" and not message:
                row = {"kernel": kernel, "kind": kind_of(kernel), "us": float(us), "predicted": float(predicted)}
                groups[group].setdefault(names[label], []).append(row | {"error": float(error)})
    return groups, tried, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--gpu", required=True, help="the GPU that printed the lines")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    groups, tried, wrong = rows_of(arguments.files)
    facts = record.environment() | {"command": "python benchmarks/kernels/printed_trials.py --gpu NAME FILE..."}
    facts |= {"gpu": arguments.gpu, "tried": tried, "wrong": wrong, "groups": groups}
    print(record.write("printed_trials", facts, arguments.out))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

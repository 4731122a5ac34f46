"""Engines of networks that no recipe names beside PyTorch's: exported here, built without a lock, as a stranger's are.

    python benchmarks/other_networks.py FOLDER export   # where torch, torchvision and timm are: random weights
    python benchmarks/other_networks.py FOLDER build    # engines, their kernels chosen by prediction alone
    python benchmarks/other_networks.py FOLDER measure  # on the GPU, again until it says that no row is left
    python benchmarks/other_networks.py FOLDER close    # anywhere: writes results/other_networks.json

Both sides read fp16 channels-last images, compute in fp16 with fp32 sums, and have the same weights: peers are the ONNX
model in torch (`bolt-build bench --against`), in a CUDA graph and by torch.compile reduce-overhead, in turns with the
engine, and their outputs are compared. Each step is timed alone as well, beside its bound (`kinds.py`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peer_rows
import record
from against_peers import load
from kinds import bound_us
from peer_rows import PeerRow, summary
from step_kinds import kind_of

from bolt_build.bench.replays import step_times
from bolt_build.build.engine_file import read_engine

PEERS = ("torch-graph", "torch-reduce-overhead")
SECONDS = 75.0
"""What a row may take."""
EXPORTER = Path(__file__).with_name("export_model.py")


@dataclass(frozen=True)
class Row(PeerRow):
    """`source`: the model in `exported_models.py`."""

    source: str = "torchvision"


def row(source: str, batch: int = 32) -> Row:
    return Row(source.partition(".")[2], batch, source=source)


ROWS = tuple(map(row, (
    "torchvision.regnet_y_1_6gf", "torchvision.shufflenet_v2_x1_0", "torchvision.efficientnet_v2_s",
    "torchvision.swin_t", "torchvision.inception_v3", "timm.ghostnet_100", "timm.res2net50_14w_8s",
    "timm.mobilevitv2_050", "timm.poolformer_s12", "timm.repvit_m0_9", "timm.mobilenetv4_conv_small",
    "timm.fastvit_t8",
)))  # fmt: skip
"""Kinds of blocks that the recipes do not have: none of these was looked at when kernels were made."""


def export(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    failed = 0
    for each in rows:
        file = arguments.folder / f"{each.model}.onnx"
        words = [sys.executable, str(EXPORTER), each.source, "ts17", str(file), str(each.batch)]
        said = "ok" if file.is_file() else subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout
        print(f"{each.source}: {said.strip()}", flush=True)
        failed += not file.is_file()
    return 1 if failed else 0


def build(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    def recipe(model: str) -> Path:
        path: Path = arguments.folder / f"{model}.yaml"
        path.write_text(
            f"bolt: 1\nmodel: {{onnx: {model}.onnx}}\ntargets: {{{arguments.target}: {{precision: fp16}}}}\n"
            "engine: {io: {dtype: fp16, layout: channels_last}}\nverify: {samples: 1}\n"
        )
        return path

    return peer_rows.build(arguments, rows, recipe)


def steps_of(directory: Path, batch: int) -> list[dict[str, Any]]:
    """Every step of a built engine alone, beside its bound."""
    taken = dict(step_times(directory, batch))
    (plan,) = (each for each in read_engine((directory / "engine.json").read_text()).plans if each.batch == batch)
    return [
        {"step": step.name, "kind": kind_of(step.problem), "family": step.candidate.family,
         "us": 1e3 * taken[step.name], "bound_us": bound_us(step.problem)}
        for step in plan.steps if not step.view
    ]  # fmt: skip


def measure(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    peer_rows.measure(arguments, rows, lambda _: PEERS, lambda _: SECONDS, "torch", "torchvision", "timm")
    engines = load(arguments.folder / "engines.json") or {}
    for each in rows:
        path = arguments.folder / f"row_{each.name}.json"
        found = load(path)
        if found is not None and "steps" not in found:
            steps = steps_of(arguments.folder / engines[each.model]["directory"], each.batch)
            record.save(path, found | {"steps": steps})
    return 0


def close(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    found = peer_rows.measured(arguments, rows)
    lines = [
        {**line, "steps": sum(step["us"] for step in found[each]["steps"]),
         "bound_us": sum(step["bound_us"] for step in found[each]["steps"])}
        for each, line in zip(found, peer_rows.lines_of(arguments, "other_networks", rows, found), strict=True)
    ]  # fmt: skip
    return peer_rows.write(
        arguments, "other_networks", next(iter(found.values())), {"all": summary(lines)}, rows, lines
    )


def main() -> int:
    parser = peer_rows.parser_of(__doc__, "export", "build", "measure", "close")
    parser.add_argument("--rows", nargs="+", metavar="MODEL", help="only these, swin_t say")
    arguments = peer_rows.parsed(parser)
    rows = [each for each in ROWS if arguments.rows is None or each.model in arguments.rows]
    stages = {"export": export, "build": build, "measure": measure, "close": close}
    return stages[arguments.stage](arguments, rows)


if __name__ == "__main__":
    sys.exit(main())

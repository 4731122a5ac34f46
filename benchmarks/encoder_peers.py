"""Engines of encoders beside what a PyTorch user would run, on one GPU.

    python benchmarks/encoder_peers.py FOLDER build             # engines, from the locks where there are some
    python benchmarks/encoder_peers.py FOLDER measure           # again until it says that no row is left
    python benchmarks/encoder_peers.py FOLDER close             # anywhere: writes results/encoder_peers.json
    python benchmarks/encoder_peers.py FOLDER all               # one after the other

A row is a recipe and a batch. Both sides read the same token ids (int64, no padding mask) or fp16 images, compute in
fp16 with fp32 sums, write fp16, and have the same seeded weights. Peers are transformers' and torchvision's models
(`published_encoders.py`): eager, eager in a CUDA graph, and torch.compile reduce-overhead with and without frozen
weights. They run in turns with the engine, and their outputs are compared. Each row is written as it is done. `measure`
begins no row that may not be done within `--limit` seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import record
from against_peers import load
from bolt_command import ROOT, build_one
from cnn_peers import bench, line, summary

PEERS = {
    "published": "EAGER",
    "published-graph": "GRAPH",
    "published-compiled": "COMPILED",
    "published-frozen": "FROZEN",
}
"""Peers, and what each is called in `published_encoders`."""
COMPILING = ("published-compiled", "published-frozen")
SECONDS, ROUNDS = 0.5, 3
"""How long a contestant runs in a turn, and its turns."""


@dataclass(frozen=True)
class Row:
    """`wanted`: the engine's milliseconds at most, where an aim was set."""

    model: str
    batch: int
    wanted: float | None = None
    compiles: float = 45
    """Seconds that a peer that compiles may take."""

    @property
    def name(self) -> str:
        return f"{self.model}_b{self.batch}"

    def limit(self, peers: Sequence[str]) -> float:
        """Seconds that it may take beside these peers."""
        return 30 + self.compiles * sum(peer in COMPILING for peer in peers)


ROWS = (
    Row("bert_base", 32, 1.35), Row("bert_base", 1, 0.40), Row("vit_b16", 32, 2.2), Row("vit_b16", 1, 0.35),
    Row("bert_base_40", 32, 0.65), Row("bert_base_384", 32, 4.2), Row("bert_large", 32, 14.2, 105),
    Row("distilbert", 32), Row("clip_vision", 32), Row("whisper_tiny_encoder", 32), Row("bert_base_384", 1),
    Row("bert_large", 1, None, 105), Row("distilbert", 1), Row("clip_vision", 1), Row("whisper_tiny_encoder", 1),
)  # fmt: skip


def recipe_of(folder: Path, model: str, rows: Sequence[Row], target: str) -> Path:
    """`folder`/<model>.yaml: the bundled recipe with its lock, for the rows' batches, with fp16 at its border."""
    path = folder / f"{model}.yaml"
    base, lock = (os.path.relpath(ROOT / "recipes" / f"{model}.{kind}", folder) for kind in ("yaml", "lock"))
    kept = lock if (folder / lock).is_file() else "null"
    batches = sorted({row.batch for row in rows if row.model == model})
    layout = ", layout: channels_last" if model in ("vit_b16", "clip_vision") else ""
    path.write_text(
        f"bolt: 1\nextend: {base}\nname: {model}\ntargets: {{{target}: {{batch: {batches}}}}}\n"
        f"engine: {{io: {{dtype: fp16{layout}}}}}\ntuning: {{lock: {kept}}}\nverify: {{samples: 1}}\n"
    )
    return path


def build(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Every engine of the rows, some at a time; what became of each in `engines.json`."""
    folder: Path = arguments.folder
    words = ["--target", arguments.target, "-j", str(max(1, arguments.jobs // arguments.builds))]
    if arguments.cache is not None:
        words += ["--cache", str(arguments.cache.resolve())]

    def made_of(model: str) -> dict[str, Any]:
        return build_one(folder, recipe_of(folder, model, rows, arguments.target).name, *words)

    models = tuple(dict.fromkeys(row.model for row in rows))
    with ThreadPoolExecutor(arguments.builds) as pool:
        made = dict(zip(models, pool.map(made_of, models), strict=True))
    record.save(folder / "engines.json", (load(folder / "engines.json") or {}) | made)
    for model, each in made.items():
        print(f"{model}: {each.get('failed') or each}", flush=True)
    return 1 if any("failed" in each for each in made.values()) else 0


def offer_peers(folder: Path) -> None:
    """Offers the peers to what this process starts, as an installed package would."""
    offered = folder / "offered" / "published_encoders-1.0.dist-info"
    offered.mkdir(parents=True, exist_ok=True)
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: published-encoders\nVersion: 1.0\n")
    points = "".join(f"{name} = published_encoders:{attribute}\n" for name, attribute in PEERS.items())
    (offered / "entry_points.txt").write_text(f"[bolt_build.peers]\n{points}")
    paths = [str(offered.parent), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def measure(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """The rows that are not measured yet, as far as the time goes."""
    started, folder = time.monotonic(), arguments.folder
    offer_peers(folder)
    for row in rows:
        path = folder / f"row_{row.name}.json"
        if path.is_file() or arguments.limit - (time.monotonic() - started) < row.limit(arguments.peers):
            continue
        words = [f"{row.model}.yaml", "--batch", str(row.batch), "--against", ",".join(arguments.peers)]
        words += ["--seconds", str(SECONDS), "--rounds", str(ROUNDS), "--target", arguments.target]
        found = bench(folder, *words)
        if found is None:
            continue
        record.save(path, {"environment": record.environment("torch", "transformers", "torchvision"), "bench": found})
        print(json.dumps(line(row, found)), flush=True)
    missing = [row.name for row in rows if not (folder / f"row_{row.name}.json").is_file()]
    print(f"rows left: {', '.join(missing) or 'none'}", flush=True)
    return 0


def close(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """The table of all rows that are measured, with the geometric mean of those with an aim, and of all."""
    found = {row: load(arguments.folder / f"row_{row.name}.json") for row in rows}
    measured = {row: each for row, each in found.items() if each is not None}
    lines = [line(row, each["bench"]) for row, each in measured.items()]
    first = next(iter(measured.values()))
    engines = load(arguments.folder / "engines.json") or {}
    result = first["environment"] | {
        "gpu": first["bench"]["device"], "precision": first["bench"]["precision"], "accumulator": "fp32",
        "summary": {
            "aims": summary([each for each in lines if each["wanted_ms"] is not None]), "all": summary(lines),
        },
        "rows_missing": [row.name for row, each in found.items() if each is None],
        "built": {name: {key: each.get(key) for key in ("verified", "failed")} for name, each in engines.items()},
        "rows": lines,
    }  # fmt: skip
    print(json.dumps(result["summary"], indent=1))
    print(record.write("encoder_peers", result, arguments.out))
    return 1 if result["rows_missing"] else 0


def every_stage(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """All stages, whatever became of the one before."""
    return max([stage(arguments, rows) for stage in (build, measure, close)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=("build", "measure", "close", "all"))
    parser.add_argument("--rows", nargs="+", choices=[row.name for row in ROWS], metavar="ROW", help="only these")
    parser.add_argument("--peers", nargs="+", choices=tuple(PEERS), default=tuple(PEERS), help="only beside these")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--cache", type=Path, help="bolt-build's cache (default: the user's)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--builds", type=int, default=4, help="engines that are built at once")
    parser.add_argument("--limit", type=float, default=570, help="seconds of one `measure`")
    parser.add_argument("--out", type=Path, help="write here instead of results/encoder_peers.json")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in ROWS if arguments.rows is None or row.name in arguments.rows]
    stages = {"build": build, "measure": measure, "close": close, "all": every_stage}
    return stages[arguments.stage](arguments, rows)


if __name__ == "__main__":
    sys.exit(main())

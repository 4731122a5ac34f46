"""The same engine as several checkouts of bolt-build make it, in turns: what a change of the kernels gains end to end.

    python benchmarks/engines/versions.py FOLDER before=../before after=. [--model resnet50] [--batch 1 32 128]

Each checkout builds (and verifies) the engine of a bundled recipe from the lock of *this* one, so that only what is
compiled differs. Ratios are to the first checkout's time in the same turn; beside them each engine's sum of its steps,
each replayed alone. Writes `results/versions.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.bolt_command import build_one
from bolt_build.bench.replays import Entrant, measured_in_turns


def named(text: str) -> tuple[str, Path]:
    """NAME=CHECKOUT. Raises argparse.ArgumentTypeError."""
    name, equals, path = text.partition("=")
    root = Path(path).resolve()
    if not (name and equals and (root / "bolt_build").is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=CHECKOUT with a checkout of bolt-build")
    return name, root


def commit(root: Path) -> str:
    """The commit of a checkout, with `-dirty` behind it where files differ from it."""
    words = ["git", "describe", "--always", "--exclude", "*", "--dirty"]
    return subprocess.run(words, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def build(arguments: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """Each checkout's engine by its name, in a folder of its own: equal recipes make equal names there."""

    def made(name: str, root: Path) -> dict[str, Any]:
        own = folder / name
        own.mkdir(exist_ok=True)
        recipes = os.path.relpath(ROOT / "recipes", own)
        (own / f"{arguments.model}.yaml").write_text(
            f"bolt: 1\nextend: {recipes}/{arguments.model}.yaml\nname: {arguments.model}\n"
            f"targets: {{{arguments.target}: {{batch: {arguments.batch}}}}}\n"
            f"tuning: {{lock: {recipes}/{arguments.model}.lock}}\nverify: {{samples: 1}}\n"
        )
        words = ["--target", arguments.target, "-j", str(max(1, arguments.jobs // len(arguments.checkouts)))]
        words += [] if arguments.cache is None else ["--cache", str(arguments.cache)]
        return build_one(own, f"{arguments.model}.yaml", *words, root=root)

    with ThreadPoolExecutor(len(arguments.checkouts)) as pool:
        found = pool.map(lambda each: made(*each), arguments.checkouts)
        return dict(zip((name for name, _ in arguments.checkouts), found, strict=True))


def measure(names: Sequence[str], built: Mapping[str, Mapping[str, Any]], batch: int, rounds: int) -> dict[str, Any]:
    """One batch: medians, ratios to the first with their quartiles, and the steps alone."""
    entrants = [Entrant(name, built[name]["directory"]) for name in names]
    turns = measured_in_turns(entrants, batch, rounds=rounds, steps=True)
    rows = {
        name: {
            "ms": turns.median(name), "over_first": turns.ratio(name, names[0]),
            "steps_alone_ms": sum(ms for _, ms in turns.steps[name]),
        }
        for name in names
    }  # fmt: skip
    return {"batch": batch, "device": turns.device, "versions": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("checkouts", type=named, nargs="+", metavar="NAME=CHECKOUT")
    parser.add_argument("--model", default="resnet50", help="a bundled recipe")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32, 128])
    parser.add_argument("--target", default="h200")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--cache", type=Path, help="bolt-build's cache (default: the user's)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="write here instead of results/versions.json")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name, _ in arguments.checkouts]

    built = build(arguments, folder)
    failed = {name: each["failed"] for name, each in built.items() if "failed" in each}
    for name, why in failed.items():
        print(f"{name}: {why}", file=sys.stderr)
    if failed:
        return 1
    batches = []
    for batch in arguments.batch:
        batches.append(measure(names, built, batch, arguments.rounds))
        print(json.dumps(batches[-1]), flush=True)
    result = record.environment() | {
        "model": arguments.model, "target": arguments.target, "rounds": arguments.rounds,
        "dtype": "fp16", "accumulator": "fp32", "commits": {name: commit(root) for name, root in arguments.checkouts},
        "verified": {name: built[name]["verified"] for name in names}, "batches": batches,
    }  # fmt: skip
    print(record.write("versions", result, arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

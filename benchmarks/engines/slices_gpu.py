"""Times engines of networks with split channels on an H200, with slices that are views and with copies of them.

    python benchmarks/engines/slices_gpu.py FOLDER build --before CHECKOUT --onnx FILE...    # needs no GPU
    python benchmarks/engines/slices_gpu.py FOLDER measure  # on the GPU, needs no compiler

`slices.py` exports the networks. Engines are built at batch 32 by the package of a checkout from before slices were
views and by this one, with predicted kernels. `measure` runs both in turns and writes `$OUT/slices_gpu.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.engines.slices import BATCH, TARGET

ROUNDS, SECONDS = 5, 1.0
WAYS = ("before", "after")


def build(folder: Path, before: Path, files: list[Path], jobs: int) -> None:
    """Builds each network both ways, into `folder`/WAY/generated. Raises CalledProcessError."""
    for way, checkout in zip(WAYS, (before, ROOT), strict=True):
        work = folder / way
        work.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONPATH": str(checkout.resolve())}
        for file in files:
            (work / f"{file.stem}.yaml").write_text(
                f"bolt: 1\nname: {file.stem}\nmodel: {{onnx: {file.resolve()}, batch: {BATCH}}}\n"
                f"targets: {{{TARGET}: {{precision: fp16}}}}\ntuning: {{lock: null}}\n"
            )
            command = [sys.executable, "-m", "bolt_build", f"{file.stem}.yaml", "-j", str(jobs)]
            subprocess.run(command, cwd=work, env=environment, check=True)


def measure(folder: Path) -> dict[str, Any]:
    """What `--bench` of the runners prints, in turns, by network and way."""
    found: dict[str, dict[str, list[Any]]] = {}
    for recipe in sorted((folder / WAYS[0]).glob("*.yaml")):
        name = recipe.stem
        rounds: dict[str, list[Any]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, times in rounds.items():
                runner = folder / way / "generated" / name / TARGET / f"{name}-run"
                command = [str(runner), "--bench", "--json", "--seconds", str(SECONDS)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                times.append(json.loads(done.stdout))
        found[name] = rounds
        print(name, *(rounds[way][-1] for way in WAYS), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("build", "measure"))
    parser.add_argument("--before", type=Path)
    parser.add_argument("--onnx", nargs="+", type=Path, default=[])
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what == "build":
        build(arguments.folder, arguments.before, arguments.onnx, arguments.jobs)
        return
    path = Path(os.environ["OUT"]) / "slices_gpu.json"
    record.save(path, record.environment() | {"engines": measure(arguments.folder)})


if __name__ == "__main__":
    main()

"""What padding costs: an engine of several lengths on each of its lengths, and on one token fewer, which is padded.

    python benchmarks/engines/padded_lengths.py [--recipe recipes/bert_base_masked.yaml] [--target h200] [--out FILE]

The recipe's engine must be built (`bolt-build RECIPE --target TARGET`). Its runner times both, so the padded one has
its copies into and out of the buffers of the context beside the run; inputs lie in memory of the device.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT
from benchmarks.record import environment, write
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan
from bolt_build.runtime import names
from bolt_build.schema.load import load_recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes" / "bert_base_masked.yaml")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--generated", type=Path, default=Path("generated"))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    name = load_recipe(arguments.recipe).name
    directory = arguments.generated / name / arguments.target
    engine = read_engine((directory / "engine.json").read_text(encoding="utf-8"))
    rows = [
        row for plan in engine.plans for row in timed(directory / names.runner(name), engine, plan, arguments.seconds)
    ]
    write("padded_lengths", {**environment(), "engine": name, "target": arguments.target, "rows": rows}, arguments.out)


def timed(runner: Path, engine: EnginePlan, plan: BatchPlan, seconds: float) -> list[dict[str, Any]]:
    """Milliseconds of the plan on what it is for, and with each length that it pads one shorter."""
    found = []
    for shorter in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            given = Path(folder) / "inputs.npz"
            np.savez(given, **inputs(engine, plan, shorter))
            words = [os.fspath(runner), "--bench", "--json", "--seconds", str(seconds), "--input", os.fspath(given)]
            said = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        assert (said["batch"], [tuple(pair) for pair in said["dims"]]) == (plan.batch, list(plan.dims))
        sizes = [plan.batch, *(extent - shorter for _, extent in plan.dims)]
        found.append({"plan": list(plan.sizes.numbers), "sizes": sizes, "median_ms": said["median_ms"]})
    return found


def inputs(engine: EnginePlan, plan: BatchPlan, shorter: int) -> dict[str, np.ndarray[Any, Any]]:
    """Ones, which are tokens and a mask that leaves all; so many fewer along each dimension that is padded."""
    found = {}
    for port in plan.inputs:
        shape = list(port.operand.shape)
        for dim in engine.padded[1:]:
            for axis in dict(dim.axes).get(port.name, ()):
                shape[axis] -= shorter
        found[port.name] = np.ones(shape, numpy_dtype(port.operand.type.dtype))
    return found


if __name__ == "__main__":
    main()

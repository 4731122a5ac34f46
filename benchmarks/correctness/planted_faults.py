"""Plants faults in every layer of engines and says which of them verification finds.

An engine is the planner's own for a target, computed by NumPy with each tensor rounded to what the plan stores it in:
what verification would see of it. `tests/support/planted.py` has the faults. Found is what fails the verification; of
the others is said why: the fault changes nothing of what is stored, or less than rounding does, or it was missed. For
the small models each kind of fault is also planted in a whole engine, all behind it computed with it, and verified as
such: the same layer must depart, and no other.

    python benchmarks/correctness/planted_faults.py  # ResNet-50 and a model of each kind, fp32 and fp16
    python benchmarks/correctness/planted_faults.py depthwise attention    # some of them
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS, record
from bolt_build.graph import zoo

sys.path[:0] = map(str, TESTS)

from fault_models import MODELS
from fault_table import Engine, Outcome, outcomes, planned_engine, right_layers, whole_verifications

TARGETS = (("host", "fp32"), ("h200", "fp16"))
SHOWN = ("layers", "right_layers_that_depart", "faults", "found", "missed", "table", "seconds")


def write(name: str, folder: Path) -> Path:
    """The model as a file: one of the zoo's or of the tests'."""
    path = folder / f"{name}.onnx"
    if name in MODELS:
        onnx.save(MODELS[name](), path)
    else:
        zoo.write(name, path)
    return path


def counted(found: list[Outcome]) -> dict[str, dict[str, int]]:
    """For each fault, in how many layers it was found, or why not."""
    table: dict[str, Counter[str]] = {}
    for outcome in found:
        table.setdefault(outcome.fault, Counter())[outcome.why or "found"] += 1
    return {fault: dict(sorted(row.items())) for fault, row in sorted(table.items())}


def row(outcome: Outcome) -> dict[str, Any]:
    """A fault that was not found, with how little it changes."""
    return {
        "layer": outcome.layer, "kernel": outcome.kernel, "fault": outcome.fault, "why": outcome.why,
        "change": float(f"{outcome.change:.3g}"), "rounding_can": float(f"{outcome.rounding:.3g}"),
        "right_layer_is_off": float(f"{outcome.right:.3g}"),
    }  # fmt: skip


def examined(engine: Engine, whole: bool) -> dict[str, Any]:
    """The table of one engine."""
    started = time.monotonic()
    right = right_layers(engine)
    found = list(outcomes(engine))
    result = {
        "layers": len(right),
        "right_layers_that_depart": [layer.name for layer in right if not layer.ok],
        "right_layers_not_judged": [layer.name for layer in right if layer.blind],
        "right_layers_largest": round(max(layer.largest for layer in right), 2),
        "right_layers_spread": round(max(layer.spread for layer in right), 3),
        "faults": len(found),
        "found": sum(outcome.found for outcome in found),
        "missed": sum(outcome.why == "missed" for outcome in found),
        "table": counted(found),
        "not_found": [row(outcome) for outcome in found if not outcome.found],
    }
    if whole:
        agreed = list(whole_verifications(engine, found))
        result |= {"verified_whole": len(agreed), "verified_whole_alike": sum(agreed)}
    return result | {"seconds": round(time.monotonic() - started, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet50", *MODELS])
    parser.add_argument("--out", type=Path, help="write here instead of benchmarks/results/planted_faults.json")
    arguments = parser.parse_args()
    result: dict[str, Any] = {**record.environment("bolt-build", "numpy", "onnxruntime"), "engines": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            path = write(name, Path(folder))
            for target, precision in TARGETS:
                engine = planned_engine(path, target, precision, batch=2 if name in MODELS else 1)
                found = examined(engine, name in MODELS)
                result["engines"][f"{name} {target} {precision}"] = found
                print(name, target, precision, *(f"{key}={found[key]}" for key in SHOWN), flush=True)
    record.write("planted_faults", result, arguments.out)
    return 1 if any(engine["missed"] for engine in result["engines"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())

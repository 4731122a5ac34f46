"""Builds and verifies well-known architectures for the host: those of the onnx package, and an exported ResNet-50.

Their weights are seeded and calibrated (`bolt_build.graph.zoo.calibrate`). Each model's figures are those of its own
verification: the largest error of an output and of any layer as a part of its tolerance, and the cosine; beside it the
seconds that calibration and the build took. VGG-19 needs 3 GB of memory.

    python benchmarks/correctness/light_models.py                        # all five
    python benchmarks/correctness/light_models.py squeezenet             # some of them
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from bolt_build.digest import decode
from bolt_build.graph.zoo.calibrate import calibrate
from bolt_build.scratch import scratch_folder
from bolt_build.verify import VerifyReport

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = {
    "resnet50": LIGHT / "light_resnet50.onnx",
    "vgg19": LIGHT / "light_vgg19.onnx",
    "squeezenet": LIGHT / "light_squeezenet.onnx",
    "inception_v1": LIGHT / "light_inception_v1.onnx",
    "resnet50_transformers": ROOT / "tests" / "data" / "models" / "resnet50_transformers.onnx",
}
SEED = 1
SAMPLES = 4


def build(name: str, folder: Path) -> dict[str, Any]:
    """One row. A build that fails or departs is a row too: `exit_code` says it."""
    started = time.monotonic()
    path = folder / f"{name}.onnx"
    onnx.save(calibrate(onnx.load(str(MODELS[name])), SEED), str(path))
    calibrated = time.monotonic()
    (folder / f"{name}.yaml").write_text(
        f"bolt: 1\nmodel: {{onnx: {path.name}, batch: 1}}\ntargets: {{host: {{precision: fp32}}}}\n"
        f"verify: {{samples: {SAMPLES}}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "bolt_build", f"{name}.yaml"], cwd=folder, env=environment(), check=False
    )
    finished = time.monotonic()
    row: dict[str, Any] = {
        "model": name,
        "megabytes": round(path.stat().st_size / 1e6, 1),
        "calibration_s": round(calibrated - started, 1),
        "build_and_verify_s": round(finished - calibrated, 1),
        "exit_code": done.returncode,
    }
    report = folder / "generated" / name / "host" / "verify.json"
    return row | (figures(report) if report.is_file() else {})


def environment() -> dict[str, str]:
    """This one, with the package of this checkout."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def figures(path: Path) -> dict[str, Any]:
    """What the verification says of its one batch."""
    report = decode(VerifyReport, json.loads(path.read_text(encoding="utf-8")))
    (batch,) = report.batches
    (output,) = batch.outputs
    worst = batch.worst_layer
    assert worst is not None
    return {
        "agrees": report.ok,
        "against": report.against,
        "samples": batch.samples,
        "layers": len(batch.layers),
        "output": output.name,
        "max_abs": output.max_abs,
        "error": output.error,
        "tolerance": output.tolerance,
        "cosine": output.cosine,
        "cosine_between_inputs": output.dependence,
        "worst_layer": worst.name,
        "worst_layer_part_of_tolerance": round(worst.used, 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}")
    names = parser.parse_args().models or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"no such model: {', '.join(unknown)}")
    rows = []
    for name in names:
        with scratch_folder() as folder:
            rows.append(build(name, folder))
        print(json.dumps(rows[-1]), flush=True)
    result = record.environment("bolt-build", "onnx", "onnxruntime", "onednn-cpu-gomp", "numpy") | {"rows": rows}
    print(record.write("light_models", result))
    return max(int(row["exit_code"]) for row in rows)


if __name__ == "__main__":
    sys.exit(main())

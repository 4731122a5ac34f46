"""Builds engines of well-known and of random graphs for a GPU target, to be checked on such a GPU by `gpu_checks.py`.

Beside each engine `source.json` says which model it is of, so that it can be written again where the engine is checked:
weights need not travel. Needs no GPU.

    python benchmarks/correctness/gpu_models.py FOLDER squeezenet inception_v1 vgg19 random:0 random:1
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, TESTS

SEED = 1
CARRIED = ("engine.json", "recipe.json", "selection.json")


def model_of(source: dict[str, Any]) -> Any:
    """The ONNX model that a source names: `light` is one of the onnx package's, `random` a seed of the tests'."""
    import onnx

    from bolt_build.graph.zoo.calibrate import calibrate

    if "random" in source:
        sys.path[:0] = map(str, TESTS)
        from random_graphs import random_model

        return random_model(int(source["random"]))
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return calibrate(onnx.load(str(light / f"light_{source['light']}.onnx")), SEED)


def build(model: str, target: str, folder: Path, jobs: int) -> int:
    """Builds into `folder`/work and copies what a check needs to `folder`/engines/<model>. Returns the exit code."""
    import onnx

    kind, _, seed = model.partition(":")
    source: dict[str, Any] = {"random": int(seed)} if kind == "random" else {"light": model}
    name = model.replace(":", "_")
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    onnx.save(model_of(source), str(work / f"{name}.onnx"))
    batch = "[1, 3]" if kind == "random" else "1"
    (work / f"{name}.yaml").write_text(
        f"bolt: 1\nname: {name}\nmodel: {{onnx: {name}.onnx, batch: {batch}}}\n"
        f"targets: {{{target}: {{precision: fp16}}}}\n"
    )
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths}
    command = [sys.executable, "-m", "bolt_build", f"{name}.yaml", "-j", str(jobs)]
    done = subprocess.run(command, cwd=work, env=environment, check=False)
    if done.returncode == 0:
        made, to = work / "generated" / name / target, folder / "engines" / name
        to.mkdir(parents=True, exist_ok=True)
        for file in (*CARRIED, f"lib{name}.so", f"{name}-run"):
            shutil.copy(made / file, to / file)
        (to / "source.json").write_text(json.dumps(source) + "\n")
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--target", default="h200")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    codes = {m: build(m, arguments.target, arguments.folder.resolve(), arguments.jobs) for m in arguments.models}
    print(json.dumps(codes))
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main())

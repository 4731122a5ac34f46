"""Counts steps that only move elements in engines of networks with split channels, before and after slices are views.

    python benchmarks/engines/slices.py --before CHECKOUT --onnx FILE...    # a checkout from before slices were views

Each is planned for an H200 without a lock at batch 32, by prediction, by the package of either checkout; no GPU is
needed. Writes `results/slices.json`. Networks are exported with calibrated random weights (`export_torch.py`):

    python benchmarks/engines/slices.py --export FOLDER       # in an environment with torch, torchvision and timm
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record

TARGET, BATCH = "h200", 32
MOVES = ("slice", "concat", "rearrange", "transpose", "convert", "identity", "expand", "gather")
NETWORKS = (
    "torchvision.shufflenet_v2_x0_5", "torchvision.shufflenet_v2_x1_0", "timm.res2net50_26w_4s",
    "timm.res2net50_14w_8s", "timm.cspresnet50", "timm.cspdarknet53", "timm.cs3darknet_m", "timm.ghostnet_100",
    "timm.dla34", "timm.hrnet_w18_small", "timm.vovnet39a", "timm.ese_vovnet19b_dw",
)  # fmt: skip


def export(folder: Path) -> None:
    """Writes each network's file, named as it is behind the dot."""
    import torch

    from benchmarks.exporters.export_torch import SEED, calibrated, drawn
    from benchmarks.exporters.torch_models.catalog import timm_model, torchvision_model

    for name in NETWORKS:
        package, _, own = name.partition(".")
        torch.manual_seed(SEED)
        model, inputs = (timm_model if package == "timm" else torchvision_model)(own)
        model.eval()
        drawn(model)
        calibrated(model, inputs)
        with torch.no_grad():
            torch.onnx.export(
                model, inputs, folder / f"{own}.onnx", dynamo=False, opset_version=17,
                input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
            )  # fmt: skip
        print(own, flush=True)


def counted(file: Path, folder: Path) -> dict[str, Any]:
    """What is moved in the network's engine, what slices spare, and why others are copied."""
    from bolt_build.families import load
    from bolt_build.graph.onnx_import import load_model
    from bolt_build.planner.plan_engine import plan_engine
    from bolt_build.schema.load import load_recipe
    from bolt_build.targets import target_named

    path = folder / "slices.yaml"
    path.write_text(
        f"bolt: 1\nname: slices\nmodel: {{onnx: {file.resolve()}, batch: {BATCH}}}\n"
        f"targets: {{{TARGET}: {{precision: fp16}}}}\ntuning: {{lock: null}}\n"
    )
    recipe, target = load_recipe(path), target_named(TARGET)
    (spec,) = recipe.targets
    families = {family.name: family for family in load(target)}
    graphs = load_model(file).graphs((BATCH,), recipe.model.dims, recipe.model.lengths)
    plan = plan_engine(graphs, recipe, spec, target, tuple(families.values())).plan
    kinds, seconds, moving = Counter[str](), 0.0, 0.0
    for step in plan.plans[0].steps:
        if step.view:
            continue
        took = families[step.candidate.family].predict(step.problem, step.candidate, target)
        seconds += took
        if step.problem.op.kind in MOVES:
            kinds[step.problem.op.kind] += 1
            moving += took
    declined = [d for d in plan.decisions if d.stage == "write-in-place" and d.action != "copies nothing"]
    return {"seconds": seconds, "moving": moving, "kinds": dict(kinds), "copied": [d.reason for d in declined]}


def counted_by(checkout: Path, files: list[Path]) -> dict[str, Any]:
    """The same by the package of a checkout."""
    command = [sys.executable, __file__, "--count", "--onnx", *map(str, files)]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--onnx", nargs="+", type=Path, default=[])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--count", action="store_true", help="print what is counted, and write nothing")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.export is not None:
        export(arguments.export)
    elif arguments.count:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps({file.stem: counted(file, Path(name)) for file in arguments.onnx}))
    else:
        before, after = (counted_by(root.resolve(), arguments.onnx) for root in (arguments.before, ROOT))
        for network, one in after.items():
            print(network, *(f"{each['seconds'] * 1e6:.0f} us {each['kinds']}" for each in (before[network], one)))
        path = arguments.out or record.RESULTS / "slices.json"
        asked = ["git", "-C", str(arguments.before), "rev-parse", "HEAD"]
        commit = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        head = record.environment() | {"target": TARGET, "batch": BATCH, "commit_before": commit}
        record.save(path, head | {"before": before, "after": after})


if __name__ == "__main__":
    main()

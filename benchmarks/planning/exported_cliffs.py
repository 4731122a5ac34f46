"""Looks for cliffs in networks that exporters write, as `cliffs.py` does in hand-made ones.

    python benchmarks/planning/exported_cliffs.py --python exporters/bin/python --work FOLDER
    python benchmarks/planning/exported_cliffs.py ... --only 'timm.levit*'     # some of them, shown and not written

torchvision's classification and segmentation architectures and timm's of `catalog.py` are exported by torchscript at
opset 17 for any batch (`torch_exporters.py` says what the environment needs), and planned for batches of 1 and 32
without a lock: for an H200 all of them, for other targets every eighth. No GPU is needed. Of each plan are kept its
kinds of steps (family, and words of `step_kinds.py`), its cliffs, and what its steps that only move bytes or compute
element by element take: a neighbour's load or store might carry those.

Networks of the same package that `FOLDER/rows.json` has are not planned again. `--keep` leaves the networks' files in
FOLDER, and `--exported` plans those that lie there and exports nothing. What is left out then is named in
`results/exported_cliffs.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.exporters.torch_exporters import Exporter, listed_models, versions_of
from benchmarks.planning.cliffs import Timed, package_key, planned, planned_of, show, timed_steps
from benchmarks.planning.step_kinds import kind_of
from bolt_build.errors import BoltError

FORM, ANY, BATCHES = "ts17", "any", (1, 32)
FULL, SAMPLED, EVERY = "h200", ("a100", "t4"), 8
"""The target of all networks, and those of every eighth."""
VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d", "mvit_v1_b", "mvit_v2_s", "swin3d_t")
LARGEST = (
    "vit_h_14", "regnet_y_128gf", "regnet_y_32gf", "regnet_x_32gf", "vit_l_16", "vit_l_32", "convnext_large",
    "efficientnet_v2_l", "efficientnet_b7", "resnext101_64x4d",
)  # fmt: skip
"""Of torchvision, left out: smaller ones of their families have the same layers."""
MOVES = {
    "cast", "concat", "convert", "expand", "fold-depth", "gather", "identity", "pad", "rearrange", "reshape", "slice",
    "stack", "transpose", "unfold-depth",
}  # fmt: skip
ELEMENTWISE = {"activation", "batch_norm", "binary", "compare", "formula", "logic", "where"}
"""Operators of steps that move bytes, and of those that compute element by element."""
PART = 0.005
"""Of an engine: kinds of steps that take less are kept as one."""
REST = "others"


def name_of(step: Timed) -> str:
    """Family and kind: `cutlass: 1x1 conv`."""
    return f"{step.candidate.family}: {kind_of(step.problem)}"


def alone(steps: Iterable[Timed], kinds: set[str]) -> dict[str, list[float]]:
    """How many steps have nothing but an operator of `kinds`, by operator, and their seconds."""
    found: dict[str, list[float]] = {}
    for step in steps:
        operators = {each.op.kind for each in step.problem.op.sequence}
        if operators <= kinds:
            count, seconds = found.get(step.problem.op.kind, (0, 0.0))
            found[step.problem.op.kind] = [count + 1, seconds + step.seconds]
    return found


def summary(steps: Sequence[Timed]) -> dict[str, Any]:
    """What is kept of a plan."""
    total = sum(step.seconds for step in steps)
    few = {name for name, kind in planned(steps, name_of).kinds.items() if kind.seconds <= PART * total}
    found = planned(steps, lambda step: REST if name_of(step) in few else name_of(step))
    return {
        "seconds": found.seconds, "steps": len(steps), "bound": sum(step.bound for step in steps),
        "kinds": {name: vars(kind) for name, kind in found.kinds.items()},
        "cliffs": [vars(cliff) for cliff in found.cliffs],
        "moves": alone(steps, MOVES), "elementwise": alone(steps, ELEMENTWISE),
    }  # fmt: skip


_exporter: list[Exporter] = []
"""Of this process."""


def network(
    python: str, folder: Path, model: str, batches: Sequence[int], targets: Sequence[str], keep: bool
) -> dict[int, dict[str, Any]]:
    """Exports the network and plans it: "ok" or what is wrong, and its plans by target, of each batch."""
    if not _exporter:
        _exporter.append(Exporter(python))
    file = folder / f"{model}.onnx"
    if not file.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            said = _exporter[0].export(model, FORM, Path(made) / "net.onnx", ANY)
            if said != "ok":
                return {batch: {"said": f"not exported: {said}", "plans": {}} for batch in batches}
            (Path(made) / "net.onnx").rename(file)
    try:
        return {batch: plans(file, batch, targets) for batch in batches}
    finally:
        if not keep:
            file.unlink()


def plans(file: Path, batch: int, targets: Sequence[str]) -> dict[str, Any]:
    try:
        with tempfile.TemporaryDirectory() as work:
            found = {target: summary(timed_steps(file, target, batch, Path(work))) for target in targets}
        return {"said": "ok", "plans": found}
    except BoltError as error:
        return {"said": f"not planned: {error.diagnostics[0].message}", "plans": {}}


def wanted(python: str) -> list[str]:
    """The networks, in the order of `catalog.py`: the largest last."""
    models = listed_models(python)["all"]
    left_out = {f"torchvision.{name}" for name in (*VIDEO, *LARGEST)}
    return [name for name in models if name.split(".")[0] in ("torchvision", "timm") and name not in left_out]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter of the environment with the exporters")
    parser.add_argument("--work", type=Path, required=True, help="a folder for models and rows")
    parser.add_argument("--only", action="append", help="networks that match (repeatable)")
    parser.add_argument("--target", action="append", default=[], help="these instead, whatever the network")
    parser.add_argument("--batch", action="append", default=[], type=int)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="networks at once")
    parser.add_argument("--keep", action="store_true", help="keep the networks' files")
    parser.add_argument("--exported", action="store_true", help="export nothing: plan what FOLDER has")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    words.work.mkdir(parents=True, exist_ok=True)
    some = bool(words.only or words.target or words.batch)
    models = wanted(words.python)
    batches = words.batch or BATCHES
    cases = {
        model: tuple(words.target or (FULL, *(SAMPLED if index % EVERY == 0 else ())))
        for index, model in enumerate(models) if any(fnmatch.fnmatch(model, each) for each in words.only or ["*"])
    }  # fmt: skip
    if words.exported:
        cases = {model: targets for model, targets in cases.items() if (words.work / f"{model}.onnx").is_file()}
    kept, key = words.work / "rows.json", package_key()
    rows: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError):
        rows = {name: row for name, row in json.loads(kept.read_text()).items() if row["package"] == key}
    with ProcessPoolExecutor(words.jobs) as pool:
        missing = {
            pool.submit(network, words.python, words.work.resolve(), model, batches, targets, words.keep): model
            for model, targets in cases.items()
            if any(not set(targets) <= set(rows.get(row_of(model, each), {}).get("targets", ())) for each in batches)
        }
        for done in as_completed(missing):
            model = missing[done]
            for batch, row in done.result().items():
                rows[row_of(model, batch)] = row | {"package": key, "targets": cases[model]}
                report(row_of(model, batch), row)
            record.save(kept, rows)
    if not some:
        names = [row_of(model, batch) for model in cases for batch in batches]
        networks = {name: {"said": rows[name]["said"], "plans": rows[name]["plans"]} for name in names}
        head = record.environment("bolt-build", "onnx")
        head["command"] = "python benchmarks/planning/exported_cliffs.py --python exporters/bin/python --work FOLDER"
        head["versions"] |= versions_of(words.python)
        left_out = [f"torchvision.{name}" for name in LARGEST]
        left_out += [model for model in models if model not in cases]
        print(record.write("exported_cliffs", head | {"left_out": left_out, "networks": networks}, words.out))


def row_of(model: str, batch: int) -> str:
    return f"{model} {batch}"


def report(name: str, row: dict[str, Any]) -> None:
    if row["said"] != "ok":
        print(f"{name}: {row['said'][:300]}", flush=True)
    for target, plan in row["plans"].items():
        show(f"{name} {target}", planned_of({key: plan[key] for key in ("seconds", "kinds", "cliffs")}))
        for what in ("moves", "elementwise"):
            parts = [f"{count} {kind} {seconds / plan['seconds']:.1%}" for kind, (count, seconds) in plan[what].items()]
            print(f"  {what}: {', '.join(parts) or 'none'}", flush=True)


if __name__ == "__main__":
    main()

"""Engines beside what a PyTorch user would run instead, on one GPU, in turns: `torch_peers.py`, as received.

    python benchmarks/peers/against_peers.py FOLDER build  # the engines of all rows, from their recipes' locks
    python benchmarks/peers/against_peers.py FOLDER measure             # again until it says that no row is left
    python benchmarks/peers/against_peers.py FOLDER close               # anywhere: writes results/against_peers.json

A row is a model and a batch. Of each model there is an engine that reads what the peers read, half precision with
channels last, one that reads the model's own fp32 planes, and, of ResNet-50, one whose kernels are chosen by prediction
alone. They are timed as the peers are (calls by themselves after ten that warm up, medians), before the row's peers and
after them. `measure` begins no row that may not be done within `--limit` seconds: peers compile for minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.bolt_command import build_one
from bolt_build.bench.replays import Entrant, Turn, measured_in_turns

PEERS = Path(__file__).with_name("torch_peers.py")
FORMS = {"channels_last": "fp16 channels-last", "planes": "fp32 planes", "static": "fp32 planes, predicted kernels"}
AS_PEERS = Turn(untimed=10, timed=50, idle=True)
"""As `torch_peers.py` times its calls."""
ROUNDS = 4
BESIDE_SECONDS = 45
"""What a row takes beside the peer's compilation: engines twice, eager calls, imports."""
_KEPT = ("verified", "kernels", "failed")
WITHIN = 0.07
"""How far a peer may be from what it took when the targets were set."""


@dataclass(frozen=True)
class Row:
    """`expected` milliseconds of torch.compile, and the seconds that it then compiled for; `wanted`: the engine's
    milliseconds at most."""

    model: str
    batch: int
    expected: float
    compiles: int
    wanted: float
    static: bool = False

    @property
    def name(self) -> str:
        return f"{self.model}_b{self.batch}"

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(form for form in FORMS if form != "static" or self.static)


ROWS = (
    Row("resnet50", 32, 1.469, 185, 0.85, static=True), Row("resnet50", 128, 4.416, 197, 2.75, static=True),
    Row("resnet50", 1, 0.465, 179, 0.27, static=True), Row("resnet18", 32, 0.613, 46, 0.40),
    Row("vgg16", 32, 2.525, 69, 1.90), Row("repvgg_a0", 32, 0.598, 49, 0.38),
)  # fmt: skip


def write_recipe(folder: Path, model: str, form: str, rows: Sequence[Row], locks: Path, target: str) -> Path:
    """`folder`/<model>_<form>.yaml: the bundled recipe for the rows' batches alone."""
    path = folder / f"{model}_{form}.yaml"
    base = os.path.relpath(ROOT / "recipes" / f"{model}.yaml", folder)
    lock = "null" if form == "static" else os.path.relpath(locks / f"{model}.lock", folder)
    io = "\nengine: {io: {dtype: fp16, layout: channels_last}}" if form == "channels_last" else ""
    batches = sorted(row.batch for row in rows if row.model == model)
    path.write_text(
        f"bolt: 1\nextend: {base}\nname: {path.stem}\ntargets: {{{target}: {{batch: {batches}}}}}{io}\n"
        f"tuning: {{lock: {lock}}}\nverify: {{samples: 1}}\n"
    )
    return path


def build(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Every engine of the rows, some at a time; what became of each in `engines.json`."""
    folder: Path = arguments.folder
    wanted = dict.fromkeys((row.model, form) for row in rows for form in row.forms)
    paths = [write_recipe(folder, *each, rows, arguments.locks.resolve(), arguments.target) for each in wanted]
    words = ["--target", arguments.target, "-j", str(max(1, arguments.jobs // arguments.builds))]
    if arguments.cache is not None:
        words += ["--cache", str(arguments.cache.resolve())]

    with ThreadPoolExecutor(arguments.builds) as pool:
        found = pool.map(lambda path: build_one(folder, path.name, *words), paths)
        made = dict(zip((path.stem for path in paths), found, strict=True))
    known = load(folder / "engines.json") or {}
    record.save(folder / "engines.json", known | made)
    for name, each in made.items():
        print(f"{name}: {each.get('failed') or each}", flush=True)
    return 1 if any("failed" in each for each in made.values()) else 0


def engine_times(arguments: argparse.Namespace, row: Row) -> dict[str, Any]:
    """Milliseconds of each form's engine, as the peers are timed."""
    engines = load(arguments.folder / "engines.json") or {}
    there = {form: engines.get(f"{row.model}_{form}", {}).get("directory") for form in row.forms}
    entrants = [Entrant(form, directory) for form, directory in there.items() if directory is not None]
    if not entrants:
        raise SystemExit(f"no engine of {row.model} is built: run `build` first")
    found = measured_in_turns(entrants, row.batch, rounds=ROUNDS, turn=AS_PEERS)
    return {"device": found.device, "ms": {name: list(times) for name, times in found.ms.items()},
            "inputs": dict(found.inputs)}  # fmt: skip


def peer_times(row: Row, out: Path) -> dict[str, Any]:
    """What `torch_peers.py` finds. Raises subprocess.CalledProcessError."""
    environment = {**os.environ, "MODELS": row.model, "BATCHES": str(row.batch)}
    subprocess.run([sys.executable, str(PEERS), str(out)], env=environment, check=True)
    found: dict[str, Any] = json.loads(out.read_text())[f"{row.model}/b{row.batch}"]
    return found


def measure(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """The rows that are not measured yet, as far as the time goes."""
    started, folder = time.monotonic(), arguments.folder
    for row in rows:
        path = folder / f"row_{row.name}.json"
        if path.is_file():
            continue
        left = arguments.limit - (time.monotonic() - started)
        if left < row.compiles + BESIDE_SECONDS:
            print(f"{row.name}: left for the next call: {left:.0f} s are left of this one", flush=True)
            continue
        begun = time.monotonic()
        before = engine_times(arguments, row)
        try:
            peer = peer_times(row, folder / f"peers_{row.name}.json")
        except subprocess.CalledProcessError as error:
            print(f"{row.name}: {error}", flush=True)
            continue
        found = {"row": row.name, "before": before, "peer": peer, "after": engine_times(arguments, row)}
        around = record.environment("torch", "torchvision", "timm", "onnxruntime")
        found |= {"machine": machine(), "environment": around, "seconds": round(time.monotonic() - begun, 1)}
        record.save(path, found)
        print(json.dumps(line(row, load(path) or {})), flush=True)
    missing = [row.name for row in rows if not (folder / f"row_{row.name}.json").is_file()]
    print(f"rows left: {', '.join(missing) or 'none'}", flush=True)
    return 0


def machine() -> dict[str, str]:
    """The GPU that is used, and this start of its machine, so that rows of several machines are not taken for one's."""
    index = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    asked = ["nvidia-smi", "--query-gpu=name,uuid,driver_version", "--format=csv,noheader", f"--id={index}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    name, uuid, driver = [*done.stdout.strip().split(", "), "", "", ""][:3]
    started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"gpu": name, "index": index, "uuid": uuid, "driver": driver, "started": started}


def line(row: Row, found: Mapping[str, Any]) -> dict[str, Any]:
    """One row of the table; ratios are times of a peer over the engine's."""
    engines = {form: found["before"]["ms"][form] + found["after"]["ms"][form] for form in found["before"]["ms"]}
    ms = {form: statistics.median(times) for form, times in engines.items()}
    drift = {
        form: statistics.median(found["after"]["ms"][form]) / statistics.median(found["before"]["ms"][form]) - 1
        for form in ms
    }
    peer = found["peer"]
    compiled = peer["compile_max_autotune_ms"]
    return {
        "model": row.model, "batch": row.batch, "engine_ms": ms, "engine_after_over_before": drift, "peer": peer,
        "torch_compile_over": {form: compiled / each for form, each in ms.items()},
        "faster_torch_compile_over": {form: min(compiled, row.expected) / each for form, each in ms.items()},
        "eager_in_graph_over": {form: peer["graph_ms"] / each for form, each in ms.items()},
        "peer_departs_from_expected_by": compiled / row.expected - 1,
        "peer_as_expected": abs(compiled / row.expected - 1) <= WITHIN,
        "wanted_ms": row.wanted, "reached": {form: each <= row.wanted for form, each in ms.items()},
    }  # fmt: skip


def summary(lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """For each form that all rows have: the geometric mean of the ratios to torch.compile, and the least row; and the
    same beside what was expected of it where that is faster."""
    for form in FORMS:
        found = {}
        for name, kind in (("measured", "torch_compile_over"), ("measured or expected", "faster_torch_compile_over")):
            ratios = {f"{each['model']}_b{each['batch']}": each[kind].get(form) for each in lines}
            if ratios and None not in ratios.values():
                least = min(ratios, key=lambda row: ratios[row])
                mean = math.exp(statistics.mean(math.log(each) for each in ratios.values()))
                found[name] = {"geometric_mean": mean, "least": ratios[least], "least_row": least}
        if found:
            yield form, found


def waiting(tuning: Path, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Seconds to an engine of ResNet-50 at batch 32, as `cold_tuning.py` found them, and what the peer compiled for."""
    cold = json.loads(tuning.read_text())
    peer = [each["peer"]["compile_s"] for each in lines if (each["model"], each["batch"]) == ("resnet50", 32)]
    return {
        "of": tuning.name, "tune_s": cold["tune"]["wall_seconds"], "build_s": cold["build"]["wall_seconds"],
        "torch_compile_s": peer[0] if peer else None,
    }  # fmt: skip


def close(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """The table of all rows that are measured."""
    found = {row: load(arguments.folder / f"row_{row.name}.json") for row in rows}
    lines = [line(row, each) | {"gpu": each["machine"]["index"]} for row, each in found.items() if each is not None]
    gpus = {each["machine"]["uuid"]: each["machine"] for each in found.values() if each is not None}
    machines = {each["started"] for each in gpus.values()}
    engines = load(arguments.folder / "engines.json") or {}
    inputs = {form: each["before"]["inputs"][form] for each in found.values() if each for form in each["before"]["ms"]}
    around = next(each["environment"] for each in found.values() if each is not None)
    result = around | {
        "gpus": [{name: each[name] for name in ("gpu", "index", "driver")} for each in gpus.values()],
        "machines": len(machines),
        "forms": FORMS, "inputs": inputs, "summary": dict(summary(lines)),
        "rows_missing": [row.name for row, each in found.items() if each is None],
        "until_there_is_an_engine": waiting(arguments.tuning, lines),
        "built": {name: {key: each.get(key) for key in _KEPT} for name, each in engines.items()},
        "rows": lines,
    }  # fmt: skip
    show(lines)
    print(json.dumps(result["summary"], indent=1))
    print(record.write("against_peers", result, arguments.out))
    return 1 if result["rows_missing"] or len(machines) != 1 else 0


def show(lines: Sequence[Mapping[str, Any]]) -> None:
    for each in lines:
        own = ", ".join(
            f"{form} {ms:.3f} ({each['torch_compile_over'][form]:.2f}x)" for form, ms in each["engine_ms"].items()
        )
        peer = each["peer"]
        print(f"{each['model']} batch {each['batch']}: torch.compile {peer['compile_max_autotune_ms']:.3f} ms after "
              f"{peer['compile_s']:.0f} s, eager in a graph {peer['graph_ms']:.3f}; {own}")  # fmt: skip


def load(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=("build", "measure", "close"))
    parser.add_argument("--rows", nargs="+", choices=[row.name for row in ROWS], metavar="ROW", help="only these")
    parser.add_argument("--locks", type=Path, default=ROOT / "recipes", help="where the recipes' locks are")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--cache", type=Path, help="bolt-build's cache (default: the user's)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--builds", type=int, default=4, help="engines that are built at once")
    parser.add_argument("--limit", type=float, default=570, help="seconds of one `measure`")
    parser.add_argument(
        "--tuning", type=Path, default=record.RESULTS / "gpu_tuning_cold.json", help="of cold_tuning.py"
    )
    parser.add_argument("--out", type=Path, help="write here instead of results/against_peers.json")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in ROWS if arguments.rows is None or row.name in arguments.rows]
    return {"build": build, "measure": measure, "close": close}[arguments.stage](arguments, rows)


if __name__ == "__main__":
    sys.exit(main())

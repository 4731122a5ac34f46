"""The paper's Table 3: convolutions whose channels miss the alignment, padded against read as they are.

    python benchmarks/padding.py --folder DIR             # on the GPU, with compilers: tunes, builds, times
    python benchmarks/padding.py --folder DIR --export    # anywhere: writes the recipes and a bundle for each tuning
    python benchmarks/padding.py --folder DIR --build     # anywhere: builds what is timed, with DIR/*.jsonl if there
    python benchmarks/padding.py --folder DIR --time      # on the GPU: times what lies in DIR

Each row of the table is a recipe of one convolution (fp16, fp32 accumulation, channels last, bias and ReLU behind it),
built as `--set policy.padding.mode=never`: loads of 2 elements; and as `=always`: a kernel with whole loads behind a
copy of the input with padded channels. A second recipe has padded channels from the start, as from a producer that
stores them so: what it takes less than `always` is the cost of padding. Bundles are run on the GPU as `./run --results
NAME.jsonl`. Without a tuning kernels are those predicted, and the result says so.

Writes `results/padding_policy.json`; times are microseconds of whole engines, in turns. `results/padding.json` is of
single kernels, by an earlier form of this script.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import record
from bolt_command import CommandFailed, bolt, build_one
from onnx import TensorProto, helper, numpy_helper
from turns import Entrant, measured_in_turns

from bolt_build.build.engine_file import read_engine
from bolt_build.schema import load_recipe

UNPADDED, PADDED, FOLDED = "unpadded", "padded", "folded"


@dataclass(frozen=True)
class Row:
    """A row of the table, and the paper's figures on a T4: speed of padded against unpadded, cost of padding."""

    batch: int
    size: tuple[int, int]
    channels: int
    filters: int
    kernel: tuple[int, int]
    pads: tuple[int, int]
    paper: tuple[float, float]

    @property
    def name(self) -> str:
        height, width = self.size
        kernel, pads = ("x".join(map(str, pair)) for pair in (self.kernel, self.pads))
        return f"n{self.batch}_{height}x{width}_{self.channels}_{self.filters}_{kernel}_pad{pads}"

    @property
    def padded(self) -> int:
        return -(-self.channels // 8) * 8


ROWS = (
    Row(32, (20, 26), 46, 32, (3, 3), (1, 1), (1.62, 0.18)),
    Row(32, (20, 26), 46, 32, (5, 5), (2, 2), (1.95, 0.09)),
    Row(128, (14, 19), 46, 32, (5, 7), (0, 0), (1.77, 0.15)),
    Row(288, (11, 15), 46, 32, (5, 7), (0, 0), (1.71, 0.18)),
    Row(32, (20, 26), 174, 64, (3, 3), (1, 1), (1.60, 0.24)),
    Row(32, (20, 26), 174, 64, (5, 5), (2, 2), (1.99, 0.12)),
)


@dataclass(frozen=True)
class Built:
    """One of the three engines of a row: its recipe, and what is set on the command line."""

    row: Row
    form: str

    @property
    def name(self) -> str:
        return f"{self.row.name}.{self.form}"

    @property
    def channels(self) -> int:
        return self.row.padded if self.form == FOLDED else self.row.channels

    @property
    def recipe(self) -> str:
        return f"{self.row.name}@{self.channels}.yaml"

    def settings(self, folder: Path) -> tuple[str, ...]:
        mode = {UNPADDED: "never", PADDED: "always", FOLDED: "auto"}[self.form]
        lock = (folder / f"{self.name}.lock").resolve()
        values = {"name": self.name, "policy.padding.mode": mode, "tuning.lock": str(lock)}
        return tuple(word for key, value in values.items() for word in ("--set", f"{key}={value}"))


def engines(rows: Sequence[Row]) -> list[Built]:
    return [Built(row, form) for row in rows for form in (UNPADDED, PADDED, FOLDED)]


def write_recipe(folder: Path, each: Built, target: str) -> None:
    """The convolution of a row as ONNX, and its recipe; tensors are what kernels read and write, so that nothing else
    is measured."""
    row, channels = each.row, each.channels
    random = np.random.default_rng(0)
    out = [size + 2 * pad - k + 1 for size, pad, k in zip(row.size, row.pads, row.kernel, strict=True)]
    scale = 1 / math.sqrt(channels * math.prod(row.kernel))
    weights = (random.standard_normal((row.filters, channels, *row.kernel)) * scale).astype(np.float16)
    bias = random.standard_normal(row.filters).astype(np.float16)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[*row.pads, *row.pads]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["N", *shape])
        for name, shape in (("x", (channels, *row.size)), ("y", (row.filters, *out)))
    ]
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph(nodes, "padding", ports[:1], ports[1:], constants)
    path = folder / each.recipe
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path.with_suffix(".onnx")
    )
    path.write_text(
        f"bolt: 1\nname: padding\nmodel: {{onnx: '{path.stem}.onnx', batch: {row.batch}}}\n"
        f"targets: {{{target}: {{precision: fp16}}}}\nengine: {{io: {{layout: channels_last}}}}\n"
    )
    load_recipe(path)


def tune(folder: Path, each: Built, *words: str) -> None:
    """Tunes one engine with every legal kernel, here or as the words say. Raises CommandFailed."""
    bolt(folder, "tune", each.recipe, *each.settings(folder), "--all-candidates", *words)


def build(folder: Path, each: Built) -> dict[str, Any]:
    """What `build` says of the engine, and the kernels of its steps. Raises CommandFailed."""
    found = build_one(folder, each.recipe, *each.settings(folder))
    if "failed" in found:
        raise CommandFailed(found["failed"])
    (plan,) = read_engine((Path(found["directory"]) / "engine.json").read_text()).plans
    return found | {"name": each.name, "steps": [str(step.candidate) for step in plan.steps]}


def timed(folder: Path, row: Row, rounds: int) -> dict[str, Any]:
    """One row of the table, from the engines that were built of it."""
    built = {each["name"]: each for each in json.loads((folder / "built.json").read_text())}
    forms = (UNPADDED, PADDED, FOLDED)
    found = {form: built[f"{row.name}.{form}"] for form in forms}
    entrants = [Entrant(form, found[form]["directory"]) for form in forms]
    turns = measured_in_turns(entrants, row.batch, rounds=rounds)
    us = {form: 1e3 * turns.median(form) for form in forms}
    return {
        "row": row.name, "device": turns.device, "us": us,
        "kernels": {form: {key: found[form][key] for key in ("kernels", "steps")} for form in forms},
        "speed_padded": us[UNPADDED] / us[PADDED], "speed_folded": us[UNPADDED] / us[FOLDED],
        "cost_of_padding": 1 - us[FOLDED] / us[PADDED],
        "paper_t4": {"speed_padded": row.paper[0], "cost_of_padding": row.paper[1]},
    }  # fmt: skip


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the rows: geometric of speeds, arithmetic of costs."""
    return {
        "gpu": rows[0]["device"], "measured": datetime.date.today().isoformat(), "dtype": "fp16", "accumulator": "fp32",
        "speed_padded": geometric_mean(row["speed_padded"] for row in rows),
        "speed_folded": geometric_mean(row["speed_folded"] for row in rows),
        "cost_of_padding": sum(row["cost_of_padding"] for row in rows) / len(rows),
    }  # fmt: skip


def build_all(folder: Path, every: Sequence[Built], target: str, *, tuned_here: bool) -> None:
    """Writes, tunes and builds the engines; `built.json` in the folder says where they are. Raises CommandFailed."""
    built = []
    for each in every:
        write_recipe(folder, each, target)
        results = (folder / f"{each.name}.jsonl").resolve()
        if tuned_here:
            tune(folder, each)
        elif results.is_file():
            tune(folder, each, "--import", str(results))
        built.append(build(folder, each))
    record.save(folder / "built.json", built)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where recipes, locks and engines are kept")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--rows", type=int, default=len(ROWS), metavar="N", help="the first N rows of the table alone")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--out", type=Path, help="write here instead of results/padding_policy.json")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--export", action="store_true", help="make bundles to tune elsewhere, and no more")
    part.add_argument("--build", action="store_true", help="build the engines, and no more")
    part.add_argument("--time", action="store_true", help="time engines that were built")
    arguments = parser.parse_args()
    folder, rows = arguments.folder.resolve(), ROWS[: arguments.rows]
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.export:
        for each in engines(rows):
            write_recipe(folder, each, arguments.target)
            tune(folder, each, "--export", str(folder / f"{each.name}.tar"))
        return 0
    if not arguments.time:
        build_all(folder, engines(rows), arguments.target, tuned_here=not arguments.build)
    if arguments.build:
        return 0
    found = [timed(folder, row, arguments.rounds) for row in rows]
    result = {**record.environment("nvidia-cutlass", "onnx"), "summary": summary(found), "rows": found}
    print(record.write("padding_policy", result, arguments.out))
    print(json.dumps(result["summary"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

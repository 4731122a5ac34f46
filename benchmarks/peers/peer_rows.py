"""What `cnn_peers.py`, `encoder_peers.py` and `untuned_networks.py` share: engines, rows measured in turns with
`bolt-build bench --against`, and the table of them.

A row is a model and a batch. Each is written as it is done, to `row_NAME.json` of the folder; `measure` begins no row
that may not be done within its time. `close` takes rows of several folders (`--merge`), each measured on a machine or a
GPU of its own, and rows whose files are gone as `measure` printed them (`--printed`, with another row's file of that
machine as the `--head`).
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import ROOT, record
from benchmarks.bolt_command import build_one
from benchmarks.peers.against_peers import load
from bolt_build.bench.comparison import LEAST_COSINE, MOST_RMS

SECONDS, ROUNDS = 0.5, 3
"""How long a contestant runs in a turn, and its turns."""


@dataclass(frozen=True)
class PeerRow:
    """`wanted`: the engine's milliseconds at most, where an aim was set."""

    model: str
    batch: int
    wanted: float | None = None

    @property
    def name(self) -> str:
        return f"{self.model}_b{self.batch}"


R = TypeVar("R", bound=PeerRow)


def locked_recipe(arguments: argparse.Namespace, rows: Sequence[PeerRow], model: str, io: str) -> Path:
    """FOLDER/<model>.yaml: the bundled recipe with its lock, for the rows' batches; `io` says its ports' forms."""
    folder, target = arguments.folder, arguments.target
    path: Path = folder / f"{model}.yaml"
    base, lock = (os.path.relpath(ROOT / "recipes" / f"{model}.{kind}", folder) for kind in ("yaml", "lock"))
    kept = lock if (folder / lock).is_file() else "null"
    batches = sorted({row.batch for row in rows if row.model == model})
    path.write_text(
        f"bolt: 1\nextend: {base}\nname: {model}\ntargets: {{{target}: {{batch: {batches}}}}}\n"
        f"engine: {{io: {{{io}}}}}\ntuning: {{lock: {kept}}}\nverify: {{samples: 1}}\n"
    )
    return path


def build(arguments: argparse.Namespace, rows: Sequence[PeerRow], recipe: Callable[[str], Path]) -> int:
    """Every engine of the rows, some at a time, from its model's `recipe`; what became of each in `engines.json`."""
    folder: Path = arguments.folder
    words = ["--target", arguments.target, "-j", str(max(1, arguments.jobs // arguments.builds))]
    if arguments.cache is not None:
        words += ["--cache", str(arguments.cache.resolve())]

    def made_of(model: str) -> dict[str, Any]:
        return build_one(folder, recipe(model).name, *words)

    models = tuple(dict.fromkeys(row.model for row in rows))
    with ThreadPoolExecutor(arguments.builds) as pool:
        made = dict(zip(models, pool.map(made_of, models), strict=True))
    record.save(folder / "engines.json", (load(folder / "engines.json") or {}) | made)
    for model, each in made.items():
        print(f"{model}: {each.get('failed') or each}", flush=True)
    return 1 if any("failed" in each for each in made.values()) else 0


def offer_peers(folder: Path, module: str, peers: Mapping[str, str]) -> None:
    """Offers peers to what this process starts, as an installed package would: their names, and what each is called in
    `module` of this folder."""
    name = module.replace("_", "-")
    path = f"benchmarks.peers.{module}"
    offered = folder / "offered" / f"{module}-1.0.dist-info"
    offered.mkdir(parents=True, exist_ok=True)
    (offered / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = "".join(f"{peer} = {path}:{attribute}\n" for peer, attribute in peers.items())
    (offered / "entry_points.txt").write_text(f"[bolt_build.peers]\n{points}")
    paths = [str(offered.parent), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def measure(
    arguments: argparse.Namespace,
    rows: Sequence[R],
    peers: Callable[[R], Sequence[str]],
    limit: Callable[[R], float],
    *packages: str,
) -> int:
    """The rows that are not measured yet, as far as the time goes: each beside its `peers`, within `limit` seconds.
    Versions of `packages` stand in the result."""
    started, folder = time.monotonic(), arguments.folder
    for row in rows:
        path = folder / f"row_{row.name}.json"
        if path.is_file() or arguments.limit - (time.monotonic() - started) < limit(row):
            continue
        words = [f"{row.model}.yaml", "--batch", str(row.batch), "--against", ",".join(peers(row))]
        words += ["--seconds", str(SECONDS), "--rounds", str(ROUNDS), "--target", arguments.target]
        found = bench(folder, *words)
        if found is None:
            continue
        record.save(path, {"environment": record.environment(*packages), "bench": found})
        print(json.dumps(line(row, found)), flush=True)
    missing = [row.name for row in rows if not (folder / f"row_{row.name}.json").is_file()]
    print(f"rows left: {', '.join(missing) or 'none'}", flush=True)
    return 0


def bench(folder: Path, *words: str) -> dict[str, Any] | None:
    """What `bolt-build bench` found, None where it found nothing. Peers that fail or depart are part of it."""
    command = [sys.executable, "-m", "bolt_build", "bench", *words, "--format", "json"]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True, check=False
    )
    try:
        (found,) = json.loads(done.stdout)
    except ValueError:
        print(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}", flush=True)
        return None
    return dict(found)


KEPT = (
    "median_ms", "images_per_second", "sustained_images_per_second", "joules_per_image", "compile_seconds", "form",
    "library",
)  # fmt: skip
"""What a row keeps of each contestant."""


def line(row: PeerRow, found: Mapping[str, Any]) -> dict[str, Any]:
    """One row of the table. `speedup`: the fastest peer's time over the engine's."""
    ran = {each["name"]: each for each in found["results"] if "median_ms" in each}
    failed = {each["name"]: each["reason"] for each in found["results"] if "median_ms" not in each}
    peers = [name for name in ran if name != "engine"]
    engine = ran.get("engine", {}).get("median_ms")
    best = min(peers, key=lambda name: ran[name]["median_ms"], default=None)
    speedup = None if best is None or engine is None else ran[best]["median_ms"] / engine
    return {
        "model": row.model, "batch": row.batch, "wanted_ms": row.wanted, "engine_ms": engine,
        "reached": None if row.wanted is None or engine is None else engine <= row.wanted,
        "best_peer": best, "speedup": speedup, "failed": failed,
        "departs": [name for name in peers if ran[name].get("wrong") or not all(map(agrees, ran[name]["agreement"]))],
        "contestants": {name: {key: each.get(key) for key in KEPT} for name, each in ran.items()},
    }  # fmt: skip


def beside_earlier(row: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what peers took in earlier runs. The fastest peer is that of all runs: peers that compile are seldom
    run, and do not change as engines do."""
    times = {name: each["median_ms"] for name, each in row["contestants"].items() if name != "engine"}
    for name, each in earlier.items():
        times[name] = min(each["median_ms"], times.get(name, math.inf))
    best = min(times, key=lambda name: times[name], default=None)
    engine = row["engine_ms"]
    speedup = None if best is None or engine is None else times[best] / engine
    return {**row, "best_peer": best, "speedup": speedup, "earlier": dict(earlier)}


def agrees(output: Mapping[str, Any]) -> bool:
    """As `bench` judges it: 16-bit arithmetic alone stays well within."""
    return output["cosine"] >= LEAST_COSINE and output["rms"] <= MOST_RMS and not output["not_finite"]


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Ratios of the fastest peer's time to the engine's: their geometric mean, and the least row."""
    ratios = {f"{each['model']}_b{each['batch']}": each["speedup"] for each in lines if each["speedup"] is not None}
    if not ratios:
        return {}
    least = min(ratios, key=lambda name: ratios[name])
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    return {"geometric_mean": mean, "least": ratios[least], "least_row": least, "rows": len(ratios)}


def by_gpu(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The summary of all lines, and where they are of several GPUs that of each GPU's."""
    names = sorted({each["gpu"] for each in lines})
    apart = names if len(names) > 1 else []
    return {"all": summary(lines)} | {name: summary([each for each in lines if each["gpu"] == name]) for name in apart}


def measured(arguments: argparse.Namespace, rows: Sequence[R]) -> dict[R, Any]:
    """What is known of each row that is measured, in the order of the rows: of the first folder that has it."""
    found = {}
    for row in rows:
        for folder in (arguments.folder, *arguments.merge):
            if row not in found and (each := load(folder / f"row_{row.name}.json")) is not None:
                found[row] = each
    return found


@dataclass(frozen=True)
class Printed:
    """What `measure` and `build` printed: lines of the table by name of the row, and what became of engines."""

    lines: Mapping[str, dict[str, Any]]
    built: Mapping[str, dict[str, Any]]


def printed(logs: Sequence[Path], models: Collection[str]) -> Printed:
    """The rows and engines of `models` that stand in logs, among whatever else was printed there."""
    lines, built = {}, {}
    for text in (line for path in logs for line in path.read_text().splitlines()):
        model, _, said = text.partition(": ")
        if text.startswith('{"model": '):
            row = json.loads(text)
            lines[PeerRow(row["model"], row["batch"]).name] = row
        elif model in models:
            built[model] = ast.literal_eval(said) if said.startswith("{") else {"failed": said}
    return Printed(lines, built)


def printed_head(arguments: argparse.Namespace) -> Any:
    """The row of `--head`, which has the machine of rows that were printed."""
    head = arguments.head and load(arguments.head)
    if not head:
        sys.exit("close: rows that were printed need --head, a row's file of their machine")
    return head


def head_of(arguments: argparse.Namespace, found: Mapping[R, Any]) -> Any:
    """The row whose machine and versions the result's head has: the first that is measured, else that of `--head`."""
    return next(iter(found.values()), None) or printed_head(arguments)


def origin(row: Any) -> dict[str, str]:
    """When a row was measured, and where."""
    around = row["environment"]
    return {"date": around["date"], "gpu": row["bench"]["device"], "device": around["device"]}


def lines_of(
    arguments: argparse.Namespace, table: str, rows: Sequence[R], found: Mapping[R, Any]
) -> list[dict[str, Any]]:
    """The lines of rows that are measured or were printed, with their origin; with `--keep` the others' from the result
    before, and what peers took in earlier runs."""
    before = (load(record.RESULTS / f"{table}.json") if arguments.keep else None) or {"rows": ()}
    said, lines = printed(arguments.printed, ()).lines, []
    for row in rows:
        kept = [
            {key: before[key] for key in ("date", "gpu", "device")} | old
            for old in before["rows"]
            if (old["model"], old["batch"]) == (row.model, row.batch)
        ]
        if row in found:
            lines.append(beside_earlier(line(row, found[row]["bench"]) | origin(found[row]), earlier(kept)))
        elif row.name in said:
            lines.append(beside_earlier(said[row.name] | origin(printed_head(arguments)), earlier(kept)))
        else:
            lines += kept
    return lines


def earlier(kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each peer of a row's earlier runs the fastest: other hosts launch faster, and some peers are seldom run."""
    fastest: dict[str, Any] = {}
    for old in kept:
        ran = {
            name: {key: each.get(key) for key in KEPT} | {"date": old["date"]}
            for name, each in old["contestants"].items()
            if name != "engine"
        }
        for name, each in (*old.get("earlier", {}).items(), *ran.items()):
            if name not in fastest or each["median_ms"] < fastest[name]["median_ms"]:
                fastest[name] = each
    return fastest


def engines_of(arguments: argparse.Namespace, table: str, rows: Sequence[PeerRow]) -> dict[str, Any]:
    """What became of the rows' engines: as they were built, were printed, or with `--keep` are in the result before."""
    models = tuple(dict.fromkeys(row.model for row in rows))
    before = (load(record.RESULTS / f"{table}.json") or {}) if arguments.keep else {}
    made: dict[str, Any] = before.get("built", {}) | printed(arguments.printed, models).built
    for folder in (*reversed(arguments.merge), arguments.folder):
        made |= load(folder / "engines.json") or {}
    return {name: {key: made[name].get(key) for key in ("verified", "failed")} for name in models if name in made}


def write(
    arguments: argparse.Namespace,
    table: str,
    first: Mapping[str, Any],
    summaries: Mapping[str, Any],
    rows: Sequence[PeerRow],
    lines: Sequence[Mapping[str, Any]],
) -> int:
    """Writes a table; its head is that of the row `first`, but for the GPUs, which are all rows'. 1 where rows are
    missing."""
    there = {(each["model"], each["batch"]) for each in lines}
    result = first["environment"] | {
        "command": f"python {record.script()} FOLDER measure (then close)",
        "gpu": " and ".join(sorted({each["gpu"] for each in lines})),
        "precision": first["bench"]["precision"], "accumulator": "fp32",
        "summary": dict(summaries),
        "rows_missing": [row.name for row in rows if (row.model, row.batch) not in there],
        "built": engines_of(arguments, table, rows), "rows": list(lines),
    }  # fmt: skip
    print(json.dumps(result["summary"], indent=1))
    print(record.write(table, result, arguments.out))
    return 1 if result["rows_missing"] else 0


def parser_of(description: str | None, *stages: str) -> argparse.ArgumentParser:
    """The words of such a script, its own still to be added."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=stages)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--cache", type=Path, help="bolt-build's cache (default: the user's)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--builds", type=int, default=4, help="engines that are built at once")
    parser.add_argument("--limit", type=float, default=570, help="seconds of one `measure`")
    parser.add_argument("--out", type=Path, help="write here instead of results/")
    parser.add_argument("--keep", action="store_true", help="close: keep rows of the result before that FOLDER has not")
    folders, logs = {"nargs": "+", "metavar": "FOLDER"}, {"nargs": "+", "metavar": "LOG"}
    parser.add_argument("--merge", type=Path, default=(), help="close: rows and engines of these too", **folders)
    parser.add_argument("--printed", type=Path, default=(), help="close: rows and engines as they were printed", **logs)
    parser.add_argument("--head", type=Path, metavar="FILE", help="close: a row's file of their machine")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The words that were given; the folder is there."""
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    return arguments

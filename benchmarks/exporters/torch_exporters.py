"""Says of models that torch.onnx writes which of them import and plan, and whether their engines of the host are right.

`torch_models/catalog.py` has the models, randomly initialised: every classification and segmentation architecture of
torchvision, the smallest of most families of timm and transformers, and what the other files of that folder add:
custom modules, models of further packages, kinds of transformers from 5 on, single steps of its decoders. The named
ones are exported by torchscript at opsets 14 and 17 and by torch.export at opsets 18 and 23, others in one of these
forms or by transformers' own exporter. Each file is planned for an H200 (`bolt-build check`), and built for the host
and verified from a recipe of four lines.

The exporters need an environment of their own. Further packages that it lacks are named and left out:

    python -m venv exporters && exporters/bin/pip install torch torchvision timm transformers onnx onnxscript
    exporters/bin/pip install ultralytics segmentation-models-pytorch monai spandrel diffusers torchaudio speechbrain
    exporters/bin/pip install x-transformers vit-pytorch kornia pytorchvideo torch-geometric open-clip-torch rfdetr
    exporters/bin/pip install python-doctr easyocr effdet deepctr-torch neuralforecast performer-pytorch linformer
    exporters/bin/pip install nystrom-attention g-mlp-pytorch perceiver-pytorch
    python benchmarks/exporters/torch_exporters.py --python exporters/bin/python --work FOLDER
        [--keep] [--only GLOB] [--form FORM] [--again]

Rows that `FOLDER/rows.json` has are kept, so an interrupted run goes on. With `--keep` so are those of the result
before that FOLDER has not. `--again` does those again that are not right, and `--render` writes the result of what
there is. A model's file stays where its row is not right.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from bolt_build.errors import ExitCode

SCRIPT = Path(__file__).with_name("export_torch.py")
FORMS = ("ts17", "dynamo18", "dynamo23", "ts14")
"""Those that are not named are exported in one of the first two, by turns."""
HF = "hf"
"""What transformers' own exporter writes: the form of some of its models."""
NOT_BUILT = "not built yet"
SECONDS = 1200
"""The most that one export, check or build may take."""


class Exporter:
    """The process that exports; it is started again where it has ended."""

    def __init__(self, python: str) -> None:
        self._command = [python, str(SCRIPT), "--serve"]
        self._process: subprocess.Popen[str] | None = None

    def export(self, model: str, form: str, file: Path, batch: int | str = 1) -> str:
        """ "ok", or what is wrong. A batch of "any" leaves it open."""
        if self._process is None or self._process.poll() is not None:
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            self._process = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{model} {form} {file} {batch}\n")
        self._process.stdin.flush()
        alarm = threading.Timer(SECONDS, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        alarm.cancel()
        return (
            re.sub(r"\x1b\[[0-9;]*m", "", str(json.loads(line))) if line else f"the export took more than {SECONDS} s"
        )


def row_name(model: str, form: str) -> str:
    """What a row is called: a folder, a key of `rows.json` and an engine."""
    return f"{model}-{form}".replace(".", "_").lower()


class Row:
    """One model in one form: where its file lies and what became of it."""

    def __init__(self, folder: Path, model: str, form: str, versions: dict[str, str]) -> None:
        self.model, self.form, self._versions = model, form, versions
        self.name = row_name(model, form)
        self._folder = folder / self.name
        self._file = self._folder / "net.onnx"

    def run(self, exporter: Exporter, before: dict[str, Any], *, build: bool) -> dict[str, Any]:
        """The row; of that of `before` is kept what is right."""
        row: dict[str, Any] = {"model": self.model, "form": self.form, "export": "ok"}
        packages = ("torch", self.model.partition(".")[0])
        row["by"] = {name: self._versions[name] for name in packages if name in self._versions}
        if not self._file.is_file():
            self._folder.mkdir(exist_ok=True)
            made = self._folder / "made.onnx"
            row["export"] = exporter.export(self.model, self.form, made)
            if row["export"] == "ok":
                made.rename(self._file)
        if row["export"] == "ok":
            row["mib"] = round(sum(each.stat().st_size for each in self._folder.glob("*")) / 2**20, 1)
            planned = before if before.get("h200") == "planned" else self._check()
            row |= {key: planned[key] for key in ("h200", "h200_cpu_s") if key in planned}
            row |= self._build() if build else {"host": NOT_BUILT, "host_cpu_s": 0.0}
        if right(row) or row["export"] != "ok":
            shutil.rmtree(self._folder)
        return row

    def _check(self) -> dict[str, Any]:
        """Whether it imports and an engine of an H200 is planned."""
        seconds, _, said = _bolt("check", self._recipe("h200", "fp16"), "--model", folder=self._folder)
        result = json.loads(said) if said.startswith("{") else None
        if result is None:
            return {"h200": [said[-300:] or "no answer"], "h200_cpu_s": seconds}
        reasons = [each["message"] for each in result["diagnostics"] if each["severity"] == "error"]
        return {"h200": reasons or "planned", "h200_cpu_s": seconds}

    def _build(self) -> dict[str, Any]:
        """Whether it is built for the host and its engine verified."""
        seconds, _, said = _bolt("build", self._recipe("host", "fp32"), folder=self._folder)
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        result = next((each for each in events if each.get("event") == "result"), None)
        shutil.rmtree(self._folder / "generated", ignore_errors=True)
        if result is None:
            return {"host": [said[-300:] or "no answer"], "host_cpu_s": seconds}
        reasons = [each["message"] for each in result["diagnostics"] if each["severity"] == "error"]
        if result["exit_code"] == 0:
            return {"host": "verified" if result["targets"][0]["verified"] is True else "built", "host_cpu_s": seconds}
        texts = [each["text"][-600:] for each in events if each.get("kind") == "failed"]
        if result["exit_code"] == ExitCode.VERIFY_FAILED:
            texts.append("verification failed")
        return {"host": reasons + texts or [f"exit code {result['exit_code']}"], "host_cpu_s": seconds}

    def _recipe(self, target: str, precision: str) -> str:
        name = f"{self.name}-{target}"
        (self._folder / f"{target}.yaml").write_text(
            f"bolt: 1\nname: {name.replace('-', '_')}\nmodel: {{onnx: net.onnx, batch: 1}}\n"
            f"targets: {{{target}: {{precision: {precision}}}}}\n"
        )
        return f"{target}.yaml"


def right(row: dict[str, Any]) -> bool:
    """Whether the row is all that it can be."""
    return row.get("h200") == "planned" and row.get("host") == "verified"


def is_wrong(row: dict[str, Any]) -> bool:
    """Whether it was found to be less than right: one that was not built yet is not."""
    return not right(row) and (row["h200"] != "planned" or row["host"] != NOT_BUILT)


def _bolt(*words: str, folder: Path) -> tuple[float, int, str]:
    """CPU seconds, exit code and output of a command of bolt-build; the errors' text where it writes nothing else."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    command = [sys.executable, "-m", "bolt_build", *words, "--format", "json"]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=errors, start_new_session=True
        )  # fmt: skip
        alarm = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        alarm.start()
        _, status, used = os.wait4(process.pid, 0)
        alarm.cancel()
        process.returncode = code = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        said = out.read() or errors.read()
    if code == -signal.SIGKILL:
        said = f"it was killed: it took more than {SECONDS} s, or too much memory"
    return round(used.ru_utime + used.ru_stime, 1), code, said


def cause(reason: str) -> str:
    """`reason` without the names and numbers of one model's nodes."""
    short = re.sub(r" nodes? '.*$", "", reason.splitlines()[0]).removesuffix(":")
    return re.sub(r"\d+", "N", re.sub(r"( and \d+ more)|('[^']*'(, )?)", "", short)).strip()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many files were exported, planned, tried and verified on the host; how often what was in the way."""
    exported = [row for row in rows if row["export"] == "ok"]
    causes: Counter[str] = Counter()
    for row in exported:
        found = [row[target] for target in ("h200", "host") if isinstance(row[target], list)]
        causes.update({cause(reason) for reasons in found for reason in reasons})
    return {
        "models": len({row["model"] for row in rows}),
        "files": len(exported),
        "not_exported": len(rows) - len(exported),
        "planned": sum(row["h200"] == "planned" for row in exported),
        "tried": sum(row["host"] != NOT_BUILT for row in exported),
        "verified": sum(row["host"] == "verified" for row in exported),
        "not_right": [f"{row['model']}, {row['form']}" for row in exported if is_wrong(row)],
        "causes": dict(causes.most_common()),
    }


def versions_of(python: str) -> dict[str, str]:
    """Of the exporters' packages, which rows state too: other rows may come from another environment."""
    said = subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True, check=True).stdout
    return dict(json.loads(said))


def written(rows: list[dict[str, Any]], out: Path | None) -> Path:
    """Writes the result of all `rows`."""
    head = record.environment("bolt-build", "onnx", "onnxruntime")
    head["command"] = "python benchmarks/exporters/torch_exporters.py --python exporters/bin/python --work FOLDER"
    for name in sorted({name for row in rows for name in row["by"]}):
        head["versions"][name] = ", ".join(sorted({row["by"][name] for row in rows if name in row["by"]}))
    rows = sorted(rows, key=lambda row: (row["model"].lower(), row["form"]))
    return record.write("exporters", head | summary(rows) | {"rows": rows}, out)


def listed_models(python: str) -> dict[str, Any]:
    """What `export_torch.py --list` says: all models, the named ones, and those of one form."""
    said = subprocess.run([python, SCRIPT, "--list"], capture_output=True, text=True, check=True).stdout
    return dict(json.loads(said))


def rows_so_far(kept: Path, *, keep: bool) -> dict[str, dict[str, Any]]:
    """The rows of `kept` by their names; where `keep`, those of the result before beside them."""
    before = json.loads((record.RESULTS / "exporters.json").read_text())["rows"] if keep else []
    found: dict[str, dict[str, Any]] = {row_name(row["model"], row["form"]): row for row in before}
    return found | (json.loads(kept.read_text()) if kept.is_file() else {})


def wanted(python: str) -> list[tuple[str, str]]:
    """Every model with each form that it is exported in: the named ones once by each exporter, then the others."""
    listed = listed_models(python)
    if listed["absent"]:
        print(f"left out, not installed: {', '.join(listed['absent'])}", flush=True)
    others = [model for model in listed["all"] if model not in listed["named"]]
    found = [(model, form) for form in FORMS[:2] for model in listed["named"]]
    found += [(model, listed["one_form"].get(model, FORMS[index % 2])) for index, model in enumerate(others)]
    return found + [(model, form) for form in FORMS[2:] for model in listed["named"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter of the environment with the exporters")
    parser.add_argument("--work", type=Path, required=True, help="a folder for models and rows")
    parser.add_argument("--only", action="append", help="models that match (repeatable)")
    parser.add_argument("--form", choices=(*FORMS, HF), action="append", help="only this form (repeatable)")
    parser.add_argument("--keep", action="store_true", help="keep rows of the result before that FOLDER has not")
    parser.add_argument("--again", action="store_true", help="do rows again that are not right")
    parser.add_argument("--plan", action="store_true", help="build nothing: `--again` does that later")
    parser.add_argument("--render", action="store_true", help="do no row: write the result of those there are")
    parser.add_argument("--workers", type=int, default=1, help="rows at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no row after so many")
    parser.add_argument("--out", type=Path, help="the result's file, elsewhere than under benchmarks/results")
    words = parser.parse_args()
    words.work.mkdir(parents=True, exist_ok=True)
    kept = words.work / "rows.json"
    rows = rows_so_far(kept, keep=words.keep)
    lock = threading.Lock()
    exporters = threading.local()

    begun = time.monotonic()

    def do(row: Row) -> None:
        if time.monotonic() - begun > words.seconds:
            return
        if not hasattr(exporters, "mine"):
            exporters.mine = Exporter(words.python)
        found = row.run(exporters.mine, rows.get(row.name, {}), build=not words.plan)
        with lock:
            rows[row.name] = found
            record.save(kept, rows)
            print(json.dumps(found)[:600], flush=True)

    if not words.render:
        versions = versions_of(words.python)
        every = dict.fromkeys(wanted(words.python) + [(row["model"], row["form"]) for row in rows.values()])
        todo = [
            row
            for row in (Row(words.work.resolve(), *each, versions) for each in every)
            if any(fnmatch.fnmatch(row.model, each) for each in words.only or ["*"])
            and row.form in (words.form or (*FORMS, HF))
            and (row.name not in rows or (words.again and not right(rows[row.name])))
        ]
        print(f"{len(todo)} rows to do", flush=True)
        with ThreadPoolExecutor(words.workers) as pool:
            list(pool.map(do, todo))
    found = list(rows.values())
    print(json.dumps(summary(found), indent=1))
    print(written(found, words.out))
    return 0


_VERSIONS = """
import importlib.metadata, json
found = {}
for name, package in {
    "torch": "torch", "torchvision": "torchvision", "timm": "timm", "transformers": "transformers",
    "ultralytics": "ultralytics", "smp": "segmentation-models-pytorch", "monai": "monai", "spandrel": "spandrel",
    "diffusers": "diffusers", "torchaudio": "torchaudio", "speechbrain": "speechbrain",
    "x_transformers": "x-transformers", "vit_pytorch": "vit-pytorch", "kornia": "kornia",
    "pytorchvideo": "pytorchvideo", "torch_geometric": "torch-geometric", "open_clip": "open-clip-torch",
    "rfdetr": "rfdetr",
}.items():
    try:
        found[name] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


if __name__ == "__main__":
    sys.exit(main())

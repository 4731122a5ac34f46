"""Says of models that torch.onnx writes which of them import and plan, and of some whether an engine of the host is
right.

`export_model.py` has the models, randomly initialised: torchvision's, timm's and transformers', the smallest of each
family. Every one is exported by torchscript at opset 17, those of `EVERY_FORM` also at opset 14 and by torch.export at
opsets 18 and 23. Each file is checked (`bolt-build check --model`: import, and plans for host and h200) and those of
`BUILT` are built for the host and verified.

The exporters need an environment of their own:

    python -m venv exporters && exporters/bin/pip install torch torchvision timm transformers onnx onnxscript
    python benchmarks/exporters.py --python exporters/bin/python --work FOLDER [--only GLOB] [--form FORM] [--again]

Rows that `FOLDER/rows.json` has are kept, so an interrupted run goes on; `--again` checks kept files again.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import record

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("export_model.py")
USUAL = "ts17"
FORMS = ("ts14", "ts17", "dynamo18", "dynamo23")
EVERY_FORM = (
    "torchvision.resnet18", "torchvision.mobilenet_v3_small", "torchvision.swin_t", "torchvision.vit_b_32",
    "torchvision.lraspp_mobilenet_v3_large", "timm.deit_tiny_patch16_224", "timm.mobilevit_xxs", "transformers.Bert",
    "transformers.DistilBert", "transformers.Albert", "transformers.ViT", "transformers.CLIPText",
    "transformers.CLIPVision", "transformers.Whisper", "transformers.T5", "transformers.Swin", "transformers.GPT2",
    "transformers.Llama",
)  # fmt: skip
BUILT = (
    "torchvision.mobilenet_v3_small", "torchvision.r3d_18", "timm.mobilevit_xxs", "timm.levit_128s",
    "transformers.Bert", "transformers.ViT", "transformers.CLIPText", "transformers.Whisper", "transformers.T5",
    "transformers.Swin", "transformers.GPT2", "transformers.Llama", "transformers.Wav2Vec2",
)  # fmt: skip
SECONDS = 600
"""The most that one export, check or build may take."""


class Row:
    """One model in one form: where its file lies and what became of it."""

    def __init__(self, folder: Path, model: str, form: str) -> None:
        self.model, self.form = model, form
        self.name = f"{model}-{form}".replace(".", "_").lower()
        self._folder = folder
        self._file = folder / f"{self.name}.onnx"

    def run(self, python: str, found: dict[str, Any]) -> dict[str, Any]:
        """The row; of one `found` before, only the export is kept."""
        row: dict[str, Any] = {"model": self.model, "form": self.form}
        if found.get("export") == "ok" and self._file.is_file():
            row["export"] = "ok"
        else:
            row["export"] = self._export(python)
        if row["export"] == "ok":
            row |= self._check()
            if row["check"] == "ok" and self.model in BUILT:
                row |= self._build()
        return row

    def _export(self, python: str) -> str:
        _, code, said = _ran([python, str(SCRIPT), self.model, self.form, str(self._file)], self._folder)
        return "ok" if code == 0 else (said.strip().splitlines() or ["it was killed"])[-1][:300]

    def _recipe(self, target: str) -> str:
        path = self._folder / f"{self.name}-{target.partition(':')[0]}.yaml"
        targets = {"both": "{host: {precision: fp32}, h200: {precision: fp16}}", "host": "{host: {precision: fp32}}"}
        path.write_text(
            f"bolt: 1\nmodel: {{onnx: {self._file.name}, batch: 1}}\ntargets: {targets[target]}\n"
            "verify: {samples: 2}\n"
        )
        return path.name

    def _check(self) -> dict[str, Any]:
        seconds, _, said = _bolt("check", self._recipe("both"), "--model", folder=self._folder)
        result = json.loads(said) if said.startswith("{") else None
        if result is None:
            return {"check": ["no answer"], "check_s": seconds}
        reasons = [each["message"] for each in result["diagnostics"] if each["severity"] == "error"]
        return {"check": reasons or "ok", "check_s": seconds}

    def _build(self) -> dict[str, Any]:
        seconds, code, said = _bolt("build", self._recipe("host"), folder=self._folder)
        if code == 0:
            (target,) = json.loads(said.splitlines()[-1])["targets"]
            return {"host": str(target["verified"]), "host_s": seconds}
        return {"host": said[-1500:], "host_s": seconds}


def _bolt(*words: str, folder: Path) -> tuple[float, int, str]:
    return _ran([sys.executable, "-m", "bolt_build", *words, "--format", "json"], folder)


def _ran(command: list[str], folder: Path) -> tuple[float, int, str]:
    """Seconds, exit code and output of `command`; the errors' text where it writes nothing else."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    if command[0] != sys.executable:
        environment.pop("PYTHONPATH")
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return float(SECONDS), -1, f"took more than {SECONDS} s"
    return round(time.monotonic() - started, 1), done.returncode, done.stdout or done.stderr


def cause(reason: str) -> str:
    """`reason` without the names and numbers of one model's nodes."""
    short = re.sub(r" nodes? '.*$", "", reason).removesuffix(":")
    return re.sub(r"\d+", "N", re.sub(r"( and \d+ more)|('[^']*'(, )?)", "", short)).strip()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many files import and plan, and how many of the others each cause keeps from it."""
    exported = [row for row in rows if row["export"] == "ok"]
    causes: Counter[str] = Counter()
    for row in exported:
        if row["check"] != "ok":
            causes.update({cause(reason) for reason in row["check"]})
    return {
        "models": len({row["model"] for row in rows}),
        "files": len(exported),
        "not_exported": len(rows) - len(exported),
        "imported_and_planned": sum(row["check"] == "ok" for row in exported),
        "built": sum("host" in row for row in rows),
        "verified": sum(row.get("host") == "True" for row in rows),
        "causes": dict(causes.most_common()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter of the environment with the exporters")
    parser.add_argument("--work", type=Path, required=True, help="a folder for models and rows")
    parser.add_argument("--only", action="append", help="models that match (repeatable)")
    parser.add_argument("--form", choices=FORMS, action="append", help="only this form (repeatable)")
    parser.add_argument("--again", action="store_true", help="check and build again what was exported before")
    parser.add_argument("--out", type=Path, help="the result's file, elsewhere than under benchmarks/results")
    words = parser.parse_args()
    words.work.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run([words.python, SCRIPT, "--list"], capture_output=True, text=True, check=True).stdout.split()
    kept = words.work / "rows.json"
    rows: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else {}
    for model in listed:
        if words.only and not any(fnmatch.fnmatch(model, each) for each in words.only):
            continue
        for form in FORMS if model in EVERY_FORM else (USUAL,):
            row = Row(words.work.resolve(), model, form)
            if (words.form and form not in words.form) or (row.name in rows and not words.again):
                continue
            rows[row.name] = row.run(words.python, rows.get(row.name, {}))
            record.save(kept, rows)
            print(json.dumps(rows[row.name])[:600], flush=True)
    found = list(rows.values())
    versions = subprocess.run([words.python, "-c", _VERSIONS], capture_output=True, text=True, check=True).stdout
    head = record.environment("bolt-build", "onnx", "onnxruntime")
    head["command"] = "python benchmarks/exporters.py --python exporters/bin/python --work FOLDER"
    head["versions"] |= json.loads(versions)
    result = head | summary(found) | {"rows": found}
    print(json.dumps(summary(found), indent=1))
    print(record.write("exporters", result, words.out))
    return 0


_VERSIONS = """
import importlib.metadata, json
print(json.dumps({name: importlib.metadata.version(name) for name in ("torch", "torchvision", "timm", "transformers")}))
"""


if __name__ == "__main__":
    sys.exit(main())

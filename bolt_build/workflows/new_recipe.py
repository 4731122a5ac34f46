"""A first recipe for a model, as text that a person goes on with."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bolt_build.schema.document import resolve_plain
from bolt_build.schema.names import engine_name
from bolt_build.schema.recipe import TargetSpec

_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


@dataclass(frozen=True)
class NewRecipe:
    """What a new recipe says. `onnx` or `zoo` is set. `batch` is the name of the model's symbolic batch, None where its
    first dimensions are fixed; `open_dims` are other symbolic dimensions that `dims` leaves without a size. `others`
    are targets that are offered as comments. `lock` is one that bolt-build brings along for the model, which is copied
    beside the recipe."""

    path: Path
    onnx: Path | None
    zoo: str | None
    batch: str | None
    dims: tuple[tuple[str, int], ...]
    open_dims: tuple[str, ...]
    targets: tuple[TargetSpec, ...]
    others: tuple[TargetSpec, ...]
    lock: Path | None = None

    @property
    def lock_path(self) -> Path:
        """Where the recipe's lock is to lie."""
        return self.path.with_suffix(".lock")

    @property
    def model(self) -> str:
        """What the recipe calls its model: a path that is relative to it, or a name of the zoo."""
        if self.onnx is None:
            return str(self.zoo)
        return os.path.relpath(self.onnx, os.path.dirname(os.path.abspath(self.path))).replace(os.sep, "/")

    def text(self, schema: str) -> str:
        """The recipe as YAML. `schema` is the file that its first line points editors to."""
        lines = [
            f"# yaml-language-server: $schema={schema}",
            "# Every key with its default: bolt-build check --expand",
            "bolt: 1",
            *_name(self.path),
            "model:",
            f"  {'zoo' if self.onnx is None else 'onnx'}: {_word(self.model)}",
            *_batch(self.batch),
            *_dims(self.dims, self.open_dims),
            "targets:",
            *(f"  {_word(spec.name)}: {{precision: {spec.precision}}}" for spec in self.targets),
            *(f"  # {spec.name}: {{precision: {spec.precision}}}" for spec in self.others),
            "# policy: {fusion: {persistent: auto}}   # two products in one kernel: auto, always or never",
            *_tuning(self.lock_path.name, self.lock),
            "# verify: {samples: 4, seed: 0}          # every layer is compared with onnxruntime",
        ]
        return "\n".join(lines) + "\n"


def _tuning(name: str, lock: Path | None) -> list[str]:
    said = f"tuning: {{lock: {_word(name)}}}"
    if lock is not None:
        return [f"{said}   # its kernels were measured, and came with bolt-build"]
    return [f"# {said}   # what 'bolt-build tune' measures is kept there"]


def _name(path: Path) -> list[str]:
    return [] if engine_name(path.stem) else ["name: model"]


def _batch(symbol: str | None) -> list[str]:
    if symbol is None:
        return ["  # batch: the model's own; export it with a symbolic first dimension for others"]
    return [f"  batch: [1]   # the model's {json.dumps(symbol)}: one plan for each size, with the same weights"]


def _dims(dims: Sequence[tuple[str, int]], open_dims: Sequence[str]) -> list[str]:
    known = ", ".join(f"{_word(name)}: {size}" for name, size in dims)
    if not open_dims:
        return [f"  dims: {{{known}}}"] if known else []
    missing = ", ".join(f"{_word(name)}: SIZE" for name in open_dims)
    if known:
        return [f"  dims: {{{known}}}   # symbolic in the model too: {missing}"]
    return [f"  # dims: {{{missing}}}   # symbolic in the model: give sizes"]


def _word(text: str) -> str:
    """`text` as a string of YAML 1.2 and 1.1, on one line."""
    plain = _PLAIN.fullmatch(text) and text[0].isalpha() and resolve_plain(text) == text
    if plain and text.lower() not in ("yes", "no", "on", "off", "y", "n"):
        return text
    quoted: str = yaml.dump(text, default_style='"', width=sys.maxsize)
    return quoted.rstrip("\n")

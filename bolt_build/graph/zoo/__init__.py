"""Models that are written here instead of downloaded: `{zoo: resnet50}` in a recipe.

A zoo model is its graph (an ONNX model whose weights are zero) with calibrated seeded
weights. The same bytes are written on every machine. Importing this package imports neither NumPy nor onnx.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bolt_build.errors import BoltError, Diagnostic

if TYPE_CHECKING:
    from onnx import ModelProto

_BUILDERS = {
    "repvgg_a0": ("repvgg", "build_a0"),
    "repvgg_a1": ("repvgg", "build_a1"),
    "repvgg_b0": ("repvgg", "build_b0"),
    "resnet18": ("resnet18", "build"),
    "resnet50": ("resnet50", "build"),
    "vgg16": ("vgg16", "build"),
    "vgg19": ("vgg16", "build_19"),
    "wide_resnet50_2": ("resnet50", "build_wide"),
}
"""Of each model: the module here and the function in it that gives its graph."""
_SEED = 50


def names() -> tuple[str, ...]:
    """What `write` can write."""
    return tuple(_BUILDERS)


def module(name: str) -> str:
    """The module that the graph of model `name` is built in. Raises BoltError ("unknown-zoo-model")."""
    _known(name)
    return f"{__name__}.{_BUILDERS[name][0]}"


def write(name: str, path: Path, change: Callable[[ModelProto], ModelProto] | None = None) -> None:
    """Writes model `name` as an ONNX file, all at once or not at all. `change` is made before it is calibrated.

    Raises BoltError ("unknown-zoo-model"), what `change` raises, and OSError where the file cannot be written.
    """
    _known(name)
    from bolt_build.graph.zoo.calibrate import calibrate

    within, build = _BUILDERS[name]
    graph = getattr(importlib.import_module(f"{__name__}.{within}"), build)()
    model = calibrate(graph if change is None else change(graph), _SEED)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _known(name: str) -> None:
    if name not in _BUILDERS:
        hint = f"known models: {', '.join(_BUILDERS)}"
        raise BoltError([Diagnostic("unknown-zoo-model", f"unknown zoo model '{name}'", hint=hint)])

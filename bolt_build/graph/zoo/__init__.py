"""Models that are written here instead of downloaded: `{zoo: resnet50}` in a recipe.

A zoo model is its graph (`zoo/<name>.py`: `build()`, an ONNX model whose weights are zero) with calibrated seeded
weights. The same bytes are written on every machine. Importing this package imports neither NumPy nor onnx.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic

_NAMES = ("resnet50",)
_SEED = 50
_GENERATOR = Path(__file__).resolve().parent.parent


def names() -> tuple[str, ...]:
    """What `write` can write."""
    return _NAMES


def digest(name: str) -> str:
    """SHA-256 in hex of everything that the bytes of model `name` follow from: the source of `bolt_build.graph`.

    Raises BoltError ("unknown-zoo-model").
    """
    _known(name)
    found = hashlib.sha256(f"{name}\n{_SEED}\n".encode())
    for path in sorted(_GENERATOR.rglob("*.py")):
        data = path.read_bytes()
        found.update(f"{path.relative_to(_GENERATOR).as_posix()} {len(data)}\n".encode() + data)
    return found.hexdigest()


def write(name: str, path: Path) -> None:
    """Writes model `name` as an ONNX file, all at once or not at all.

    Raises BoltError ("unknown-zoo-model"), and OSError where the file cannot be written.
    """
    _known(name)
    from bolt_build.graph.zoo.calibrate import calibrate

    model = calibrate(importlib.import_module(f"{__name__}.{name}").build(), _SEED)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _known(name: str) -> None:
    if name not in _NAMES:
        hint = f"known models: {', '.join(_NAMES)}"
        raise BoltError([Diagnostic("unknown-zoo-model", f"unknown zoo model '{name}'", hint=hint)])

"""The licences of what is in an engine's package."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WHEELS = {
    "onednn": "onednn-cpu-gomp",
    "cutlass": "nvidia-cutlass",
    # An engine holds the static CUDA runtime.
    "nvcc": "nvidia-cuda-runtime",
}
"""The wheel whose code gets into an engine, by the tool in its manifest."""
_LICENCE = re.compile(r"(licen[cs]e|notice|third-party|copying)[^/]*\Z", re.IGNORECASE)
_CODE = (".py", ".pyc")
_GCC = "libgomp.so.1: from GCC, under the GNU GPL 3 with the GCC Runtime Library Exception"


@dataclass(frozen=True)
class Licence:
    """A licence's text, and the name of its file in the package."""

    name: str
    text: bytes


def licences(manifest: Path, libraries: tuple[str, ...]) -> tuple[Licence, ...]:
    """Those of bolt-build and of the libraries in the engine, by the tools in its manifest; `README` lists them, also
    those whose text is not installed here. Raises OSError, ValueError, KeyError for a manifest that is none."""
    definition = json.loads(manifest.read_text(encoding="utf-8"))["predicate"]["buildDefinition"]
    tools = {each["name"] for each in definition["resolvedDependencies"]}
    found: list[Licence] = []
    lines = []
    for wheel in ("bolt-build", *(WHEELS[name] for name in sorted(tools & WHEELS.keys()))):
        texts = list(_texts(wheel))
        lines.append(f"{wheel}: {', '.join(each.name for each in texts) or 'its licence is not installed here'}")
        found += texts
    lines += [_GCC] if "libgomp.so.1" in libraries else []
    return (*found, Licence("README", ("\n".join(lines) + "\n").encode()))


def _texts(wheel: str) -> Iterator[Licence]:
    try:
        distribution = importlib.metadata.distribution(wheel)
    except importlib.metadata.PackageNotFoundError:
        return
    taken: set[str] = set()
    for file in sorted(distribution.files or (), key=str):
        path = Path(str(distribution.locate_file(file)))
        name = f"{wheel}-{file.name}"
        text = file.suffix not in _CODE and _LICENCE.match(file.name)
        if text and name not in taken and path.is_file():
            taken.add(name)
            yield Licence(name, path.read_bytes())

"""What the documents say of the results: one module a subject, whose functions make text of `results/*.json`.

A function under `@figures("NAME", ...)` gets what `results/NAME.json` holds and returns figures by name. A document
shows one where it has `<!-- figures: NAME --><!-- / -->`, alone on its line for a table. `python benchmarks/figures.py`
puts the text between the two.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Renderer:
    """A function that makes figures of results."""

    results: tuple[str, ...]
    make: Callable[..., dict[str, str]]
    without: Mapping[str, str]
    """Its figures where a result is not there: why."""
    beside: tuple[str, ...] = ()
    """Results that it gets too where they are there, and None for those that are not."""


RENDERERS: list[Renderer] = []


def figures(
    *results: str, without: Mapping[str, str] | None = None, beside: Sequence[str] = ()
) -> Callable[[Callable[..., dict[str, str]]], Callable[..., dict[str, str]]]:
    """Registers a function of the results of these names, which returns figures by name. `without` are its figures
    while one of the results is not there. Results of `beside` follow, None where they are not there."""

    def register(make: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
        RENDERERS.append(Renderer(results, make, without or {}, tuple(beside)))
        return make

    return register


def rendered(folder: Path) -> dict[str, str]:
    """Every figure by name, of the results in `folder`.

    Raises `ValueError` where two figures have one name.
    """
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    made: dict[str, str] = {}
    for renderer in RENDERERS:
        results = [_result(folder, name) for name in renderer.results]
        if None not in results:
            found = renderer.make(*results, *(_result(folder, name) for name in renderer.beside))
        else:
            found = dict(renderer.without)
        for name, text in found.items():
            if name in made:
                raise ValueError(f"two figures are called '{name}'")
            made[name] = text
    return made


def _result(folder: Path, name: str) -> Any:
    """What a result holds, None where it is not there."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def read_results() -> set[str]:
    """Names of the results that some figure is made of."""
    return {name for renderer in RENDERERS for name in (*renderer.results, *renderer.beside)}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def duration(seconds: float) -> str:
    """Seconds as a person says them: 0.51 s, 16 s, 3 min 7 s."""
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds >= 1 else f"{seconds:.2f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{round(seconds) // 60} min {round(seconds) % 60} s"


def kind_words(kind: str) -> str:
    """What tables call a kind of `step_kinds`: sums and products in front of a convolution are one."""
    return kind.replace("binary", "elementwise")


def percent(part: float, digits: int = 0) -> str:
    """A part of one as percent."""
    return f"{100 * part:.{digits}f}%"


def of_gpu(result: dict[str, Any]) -> str:
    """The GPU that a result is of, without its maker's name."""
    return str(result["gpu"]).removeprefix("NVIDIA ")


def short_gpu(name: str) -> str:
    """A GPU's model alone: H100 of "NVIDIA H100 80GB HBM3"."""
    return name.removeprefix("NVIDIA ").split()[0]

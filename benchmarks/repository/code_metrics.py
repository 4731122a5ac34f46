"""Counts what the house was tidied for, at a commit before and in the working tree: writes results/house.json.

    python benchmarks/repository/code_metrics.py            # before: de594dc
    python benchmarks/repository/code_metrics.py --before COMMIT

Counted in `bolt_build/`: tests of the kinds of tiles and chains (`isinstance`), functions that answer whether a result
is stale, places that state a GPU's facts beside its row, imports inside functions, cycles of modules, and lines without
the emulator. What counts is written as patterns below, so that anyone can count again.

Beside them stand the times that `build_times.py`, `null_builds.py`, `ci_run.py` and `quick_loop.py` had written at the
commit before, and those in `results/` now; none where nothing was measured since.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record

_CODE = (".py", ".h", ".cpp", ".cu", ".cuh", ".j2")
_KINDS = re.compile(r"isinstance\([^()]*(?:\([^()]*\)[^()]*)*(?:Tile|Chain|Pair)\b")
_STALE = re.compile(
    r"key == (?:record|receipt)\.key|(?:record|receipt)\.key == key|known\.key == self\.key"
    r"|(?:record|receipt)\.argv != task\.argv or"
)
"""Comparing the key or the command of what was made with those of what would be. Of those left one is the rule for
tasks, one asks whether the plan itself holds, and one whether an engine was finished, without reading its files."""
_FACTS = re.compile(
    r"\b989e12|227 ?\* ?1024|227 ?<< ?10|\bkOverlaps = |major >= 9\b|(?:shared_memory|sharedMem)\w* *(?:=|<=|<) *\d{5,}"
)
"""Peak rates, shared memory, and compute capabilities compared with a number."""


def tree(commit: str) -> dict[str, str]:
    """Files of `bolt_build/` at a commit, by path."""
    packed = subprocess.run(
        ["git", "archive", commit, "bolt_build"], cwd=ROOT, check=True, capture_output=True
    ).stdout  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        files = ((member.name, tar.extractfile(member)) for member in tar)
        return {name: file.read().decode() for name, file in files if file is not None and name.endswith(_CODE)}


def working() -> dict[str, str]:
    """The same of the working tree."""
    files = (path for path in sorted((ROOT / "bolt_build").rglob("*")) if path.suffix in _CODE)
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}


def counted(files: Mapping[str, str]) -> dict[str, Any]:
    python = {name: text for name, text in files.items() if name.endswith(".py")}
    own = {name: text for name, text in files.items() if not name.startswith("bolt_build/emulator/")}
    facts = {name: len(_FACTS.findall(text)) for name, text in own.items() if name != "bolt_build/targets.py"}
    lazy = {name: sum(1 for _ in imports_in_functions(text)) for name, text in python.items()}
    return {
        "tests of kinds of tiles and chains": sum(len(_KINDS.findall(text)) for text in python.values()),
        "answers to whether a result is stale": sorted(name for name, text in python.items() if _STALE.search(text)),
        "places beside its row that state a GPU's facts": sum(facts.values()),
        "files that do": sorted(name for name, count in facts.items() if count),
        "imports inside functions": sum(lazy.values()),
        "of which say why": sum(lazy.values()) - sum(1 for text in python.values() for _ in unexplained(text)),
        "modules in cycles": cycle(python),
        "files": len(own),
        "lines": sum(text.count("\n") for text in own.values()),
        "lines of Python": sum(text.count("\n") for name, text in own.items() if name.endswith(".py")),
    }  # fmt: skip


def imports(source: str | bytes) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import of a module, and whether it stands inside a function. Expressions, most of a module, have none."""
    left: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while left:
        node, inside = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, inside
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            under = getattr(node, part, [])
            left += [(each, inside) for each in under] if isinstance(under, list) else []


def imports_in_functions(source: str) -> Iterator[int]:
    """Their lines."""
    yield from sorted({node.lineno for node, inside in imports(source) if inside})


def unexplained(source: str) -> Iterator[int]:
    """Lines of those that no comment stands above; one holds for all that follow each other."""
    lines, inside = source.split("\n"), set(imports_in_functions(source))
    for line in sorted(inside):
        above = line - 1
        while above in inside or not lines[above - 1].strip():
            above -= 1
        if not lines[above - 1].strip().startswith("#"):
            yield line


def cycle(files: Mapping[str, str]) -> list[str]:
    """Modules of one cycle of imports, those inside functions counted; none where there is none."""
    modules = {
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): text for name, text in files.items()
    }
    graph: dict[str, set[str]] = {}
    for module, text in modules.items():
        found = set[str]()
        for node, _ in imports(text):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif node.module is not None:
                named = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name if name in modules else node.module for name in named.values()}
        graph[module] = (found & modules.keys()) - {module}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return sorted(set(error.args[1]))
    return []


_TIMES = {
    "cold build": ("build_times", ("first_build", "total", "wall_s")),
    "null build": ("build_times", ("null_build", "median_wall_s")),
    "null build, CPU time on a busy machine": ("null_builds", ("first_recipe", "median_cpu_s")),
    "test command": ("ci_run", ("wall_s",)),
    "quick loop, CPU time on a busy machine": ("quick_loop", ("cpu_s",)),
}
"""Each by the result that has it, and where in that."""


def comparable(before: str | None, now: str | None) -> bool:
    """True where both are of one device, or there is only one of them."""
    devices = {json.loads(result).get("device") for result in (before, now) if result is not None}
    return len(devices) < 2


def seconds(result: str | None, keys: Iterable[str]) -> float | None:
    """A time in a result; none where there is no such result."""
    found = None if result is None else json.loads(result)
    for key in keys:
        found = None if found is None else found.get(key)
    return found


def result_at(commit: str, name: str) -> str | None:
    """The text of a result at a commit, none where it was not there."""
    words = ["git", "show", f"{commit}:benchmarks/results/{name}.json"]
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def times(commit: str) -> dict[str, dict[str, float | None]]:
    """Seconds at the commit and now, by what was timed."""
    found = {}
    for what, (name, keys) in _TIMES.items():
        before, path = result_at(commit, name), record.RESULTS / f"{name}.json"
        now = path.read_text(encoding="utf-8") if path.exists() else None
        measured = now != before and comparable(before, now)
        found[what] = {"before": seconds(before, keys), "now": seconds(now, keys) if measured else None}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="de594dc", metavar="COMMIT")
    before = parser.parse_args().before
    result = {
        **record.environment(), "before": {"commit": before, **counted(tree(before))}, "now": counted(working()),
        "times": times(before),
    }  # fmt: skip
    print(record.write("house", result))


if __name__ == "__main__":
    main()

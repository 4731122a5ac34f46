"""Emits the engines of the recipes that another checkout has in common with this one, from both, and compares them.

    git worktree add ../before 84c486c
    python benchmarks/builds/engine_sources.py ../before

Every source that an engine is compiled from and that is written for it: tables, plans, header, runner, kernel units.
Recipes, locks and models are those of this checkout. Writes `results/engine_sources.json`: how many files are equal,
and each line that differs, with how often. Nothing is compiled, and what kernels include is not compared.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record

_EMIT = """
import sys
from pathlib import Path
import onnx
from bolt_build.emit.engine import emit, emit_runner
from bolt_build.families import load
from bolt_build.graph import zoo
from bolt_build.graph.onnx_import import load_model
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named
try:
    from bolt_build.lockfile.reading import load_lock
except ImportError:  # where it stood before
    from bolt_build.tuning.lock import load_lock

out, models, *recipes = map(Path, sys.argv[1:])
for path in recipes:
    recipe = load_recipe(path)
    model = models / f"{recipe.model.zoo}.onnx"
    if not model.exists():
        onnx.save(zoo.blank(recipe.model.zoo), str(model))  # no source has weights
    graph = load_model(model)
    for spec in recipe.targets:
        target = target_named(spec.name)
        lock = Path(recipe.tuning.lock) if recipe.tuning.lock else None
        part = load_lock(lock).target(spec.name) if lock is not None and lock.exists() else None
        chosen = [part.selection("the lock")] if part is not None else []
        batches, dims = recipe.batches(spec), recipe.model.dims
        if hasattr(graph, "graphs"):
            graphs = graph.graphs(batches, dims, recipe.model.lengths)
        else:  # before dimensions could have several lengths
            graphs = [graph.bind(batch, dims) for batch in batches]
        plan = plan_engine(graphs, recipe, spec, target, load(target), *chosen).plan
        for file in (*emit(plan, target, load(target)), emit_runner(plan)):
            at = out / f"{path.stem}:{spec.name}" / file.path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(file.text)
"""


def emitted(checkout: Path, out: Path, models: Path, recipes: list[Path]) -> dict[str, str]:
    """Sources as a checkout emits them, by recipe, target and path. Raises CalledProcessError."""
    words = [sys.executable, "-c", _EMIT, str(out), str(models), *map(str, recipes)]
    subprocess.run(words, cwd=checkout, env=os.environ | {"PYTHONPATH": str(checkout)}, check=True)
    return {str(path.relative_to(out)): path.read_text() for path in sorted(out.rglob("*")) if path.is_file()}


def differences(before: dict[str, str], now: dict[str, str]) -> dict[str, Any]:
    """Files of both that are equal, and the lines of those that are not; files that only one has."""
    lines = Counter[str]()
    differ = [name for name in before if name in now and before[name] != now[name]]
    for name in differ:
        found = difflib.unified_diff(before[name].splitlines(), now[name].splitlines(), lineterm="", n=0)
        lines.update(line for line in found if line[:1] in "+-" and line[:3] not in ("+++", "---"))
    return {
        "engines": len({name.partition("/")[0] for name in now}), "files": len(now),
        "equal": sum(before.get(name) == text for name, text in now.items()), "differ": differ,
        "only_before": sorted(before.keys() - now.keys()), "only_now": sorted(now.keys() - before.keys()),
        "lines": dict(sorted(lines.items())),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--recipes", nargs="+", metavar="NAME", help="these alone, resnet50 say")
    parser.add_argument("--out", type=Path, help="write here instead of results/engine_sources.json")
    arguments = parser.parse_args()
    common = {path.name for path in (arguments.before / "recipes").glob("*.yaml")}
    recipes = [path for path in sorted((ROOT / "recipes").glob("*.yaml")) if path.name in common]
    recipes = [path for path in recipes if not arguments.recipes or path.stem in arguments.recipes]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=arguments.before, check=True, capture_output=True, text=True
    ).stdout.strip()  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "models").mkdir()
        now, before = (
            emitted(checkout.resolve(), here / name, here / "models", recipes)
            for name, checkout in (("now", ROOT), ("before", arguments.before))
        )
    names = [path.stem for path in recipes]
    result = {**record.environment(), "before": commit, "recipes": names, **differences(before, now)}
    print(record.write("engine_sources", result, arguments.out))


if __name__ == "__main__":
    main()

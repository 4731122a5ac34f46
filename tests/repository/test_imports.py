"""How modules import each other: no cycle, also none that an import inside a function hides, and no such import without
a word on why it stands there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from benchmarks.repository import code_metrics

ROOT = Path(__file__).parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "bolt_build").rglob("*.py"))
}


def imported(module: str) -> Iterator[str]:
    """Modules of bolt-build that a module imports anywhere."""
    for node, _ in code_metrics.imports(MODULES[module].read_bytes()):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif node.module is not None:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in named if node.module in MODULES)


def test_no_module_needs_itself() -> None:
    """Raises CycleError, which names the modules, where one does."""
    order = TopologicalSorter({module: set(imported(module)) - {module} for module in MODULES})
    assert len(list(order.static_order())) == len(MODULES)


def test_every_import_inside_a_function_says_why_it_stands_there() -> None:
    sources = {path.relative_to(ROOT): path.read_text("utf-8") for path in MODULES.values()}
    found = [f"{path}:{line}" for path, source in sources.items() for line in code_metrics.unexplained(source)]
    assert found == []


def test_an_import_without_a_word_is_found() -> None:
    source = (
        'def f():\n    """F."""\n    import a\n\ndef g():\n    # Slow.\n    import b\n    import c\n\n    import d\n'
    )
    assert list(code_metrics.unexplained(source)) == [3]


def test_tests_import_no_tests_of_other_folders() -> None:
    """Such an import works where all tests run, and fails where their folder runs alone."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node, _ in code_metrics.imports(path.read_bytes()):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            asked = (name for name in names if name.startswith("test_"))
            found += [f"{path.name}: {name}" for name in asked if not (path.parent / f"{name}.py").exists()]
    assert found == []

"""Documents lead to what is there: files that they link to, and files that they name."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.figures import documents
from bolt_build.families.cutlass import registry
from bolt_build.families.cutlass.registry import KINDS
from bolt_build.planner.pipeline import PIPELINE

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    str(path.relative_to(ROOT)): path for path in (*documents(), ROOT / "docs" / "operators.md", ROOT / "CHANGELOG.md")
}
MADE_BY_BUILDS = {
    "engine.json", "manifest.json", "plan.json", "verify.json", "resnet50.lock", "resnet50.h", "engines.tsv",
    "net.yaml", "my-net.yaml", "results.jsonl",
}  # fmt: skip
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_FILE = re.compile(r"`([\w./-]+\.(?:py|h|cpp|cu|md|json|yaml|svg|txt))`")
_ROW = re.compile(r"(?:^\| |, )`([a-z_]+(?:/|\.py))`(?=,| \|)")
_FOLDER = re.compile(r"`([a-z_/]+/)`")
_FENCED = re.compile(r"```.*?```", re.DOTALL)


@cache
def files() -> tuple[str, ...]:
    kept = (
        path for top in ("bolt_build", "benchmarks", "tests", "docs", "recipes") for path in (ROOT / top).rglob("*.*")
    )
    return tuple("/" + str(path.relative_to(ROOT)) for path in (*kept, *ROOT.glob("*.*")))


def anchors(path: Path) -> set[str]:
    """Names of the page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    page = DOCUMENTS[name]
    for target, anchor in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        led = (page.parent / target).resolve() if target else page
        assert led.exists(), f"{name} links to {target}"
        assert not anchor or anchor in anchors(led), f"{name} links to {target}#{anchor}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_are_named_exist(name: str) -> None:
    """`NAME` stands for what the reader makes; others are the end of a path in this repository."""
    for named in _FILE.findall(_FENCED.sub("", DOCUMENTS[name].read_text(encoding="utf-8"))):
        if "NAME" in named or named in MADE_BY_BUILDS:
            continue
        assert any(path.endswith("/" + named) for path in files()), f"{name} names {named}"


def test_the_overviews_folders_are_in_the_order_of_imports() -> None:
    """The linter's layers, the lowest first."""
    rows = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8").partition("| folder |")[2].split("\n\n")[0]
    shown = [name.removesuffix("/").removesuffix(".py") for row in rows.splitlines()[2:] for name in _ROW.findall(row)]
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    assert shown == linter["contracts"][0]["layers"][::-1]


def test_the_overview_names_every_folder_inside_the_large_ones() -> None:
    page = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8").partition("### Inside the large ones")[2]
    rows = [row.split("|") for row in page.split("\n\n")[2].splitlines()[2:]]
    for _, place, named, _ in rows:
        (folder,) = _FOLDER.findall(place)
        there = {path.parent.name for path in (ROOT / "bolt_build" / folder).glob("*/*.py")}
        if folder.startswith("families/portable/"):
            there -= {path.parent.name for path in (ROOT / "bolt_build" / "graph" / "ops").glob("*/*.py")}
        shown = {name.rstrip("/") for name in _FOLDER.findall(named) if (ROOT / "bolt_build" / folder / name).is_dir()}
        assert shown == there, f"the overview's row of {folder}"


def test_every_kind_of_cutlass_kernels_has_a_row() -> None:
    """The registry imports each kind, or its tiles, from a file of `kinds/`."""
    imported = [type(kind).__module__ for kind in KINDS] + [
        value.__name__ for value in vars(registry).values() if isinstance(value, ModuleType)
    ]
    files = {name.rpartition(".")[2] for name in imported if ".cutlass.kinds." in name}
    page = (ROOT / "docs" / "cutlass_kernels.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert len(files) > 15
    assert sorted(name for name in files if not any(f"`{name}.py`" in row for row in rows)) == []


def test_every_pass_is_explained() -> None:
    explained = re.findall(r"^(?:- )?`([a-z-]+)` ", (ROOT / "docs" / "passes.md").read_text(encoding="utf-8"), re.M)
    assert sorted(explained) == sorted({each.name for each in PIPELINE})

"""What one Python file depends on, read from its text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bolt_build.build.own_code.imports import Imports, ModuleImports, imports_of
from bolt_build.build.own_code.source_files import SourceFiles


def at_once(text: str, module: str = "pack.inner.mod", *, package: bool = False) -> Imports:
    found = imports_of(text, module, package=package)
    assert found.later == Imports()
    return found.at_once


def later(text: str) -> Imports:
    body = "".join(f"    {line}\n" for line in text.splitlines())
    return imports_of(f"def function():\n{body}", "pack.inner.mod", package=False).later


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import os.path", ("os.path",)),
        ("from pack import one, two as three", ("pack.one", "pack.two")),
        ("from pack.other import *", ("pack.other",)),
        ("from . import beside", ("pack.inner.beside",)),
        ("from .beside import thing", ("pack.inner.beside.thing",)),
        ("from ..up import thing", ("pack.up.thing",)),
        ("class A:\n    from pack import one", ("pack.one",)),
        ("try:\n    import fast\nexcept ImportError:\n    import slow", ("fast", "slow")),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import never", ("typing.TYPE_CHECKING",)),
        ("import typing\nif typing.TYPE_CHECKING:\n    import never\nelse:\n    import always", ("always", "typing")),
        ("import importlib\nimportlib.import_module('pack.named')", ("importlib", "pack.named")),
    ],
)
def test_what_importing_a_module_imports(text: str, names: tuple[str, ...]) -> None:
    assert at_once(text).names == names


def test_relative_imports_of_a_package_start_in_it() -> None:
    assert at_once("from . import beside", "pack.inner", package=True).names == ("pack.inner.beside",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from pack import one", ("pack.one",)),
        ("import_module(f'pack.verbs.{name}')", ("pack.verbs.*",)),
        ("import_module(f'{__name__}.{name}')", ("pack.inner.mod.*",)),
        ("import_module(name)", ("*",)),
        ("EntryPoint(name, f'pack.{name}.family:{kind}', group)", ("pack.*.family",)),
    ],
)
def test_what_its_functions_import(text: str, names: tuple[str, ...]) -> None:
    assert later(text).names == names


def test_entry_points_are_loaded_by_functions_wherever_they_are_named() -> None:
    found = imports_of("ALL = EntryPoint('a', 'pack.a:A', 'g')\n", "pack", package=True)
    assert found == ModuleImports(later=Imports(("pack.a",)))


@pytest.mark.parametrize(
    "text",
    ["plugged(group='pack.ops', own=())", "plugins.plugged(group=GROUP)", "offers('pack.ops')"],
    ids=["written", "named", "offers"],
)
def test_groups_of_entry_points(text: str) -> None:
    found = imports_of(f"GROUP = 'pack.ops'\ndef look():\n    {text}\n", "pack", package=True)
    assert found.later.groups == ("pack.ops",)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("TEXT = (Path(__file__).parent / 'data.json').read_text()", ("data.json",)),
        ("TEXT = Path(__file__).with_name('data.json').read_bytes()", ("data.json",)),
        ("HERE = Path(__file__).resolve().parents[1]\nTEXT = HERE.joinpath('a', 'b.h').open()", ("../a/b.h",)),
        ("HERE: Path = Path(__file__).parent\nTEXT = open(HERE / f'{name}.h')", ("*.h",)),
        ("TEXT = files('pack.inner').joinpath('x.json').read_text()", ("../../pack/inner/x.json",)),
        ("TEXT = resources.files(__name__).joinpath('x.json').read_text()", ("../../pack/inner/mod/x.json",)),
        ("LOADER = jinja2.PackageLoader('pack.inner', 'templates')", ("../../pack/inner/templates",)),
        ("TEXT = path.read_text()", ()),
        ("PLACE = Path(__file__).parent / 'include'", ()),
        ("A = B\nB = A\nTEXT = A.read_text()", ()),
    ],
)
def test_files_that_it_reads(text: str, reads: tuple[str, ...]) -> None:
    assert at_once(text).reads == reads


def test_what_was_found_is_kept_for_a_file_that_is_untouched(tmp_path: Path) -> None:
    """A build with nothing to do must not parse: a memory that says otherwise is believed as long as the state fits."""
    path, memory = tmp_path / "mod.py", tmp_path / "cache" / "sources.json"
    path.write_text("import one\n")
    first = SourceFiles(memory)
    found = first.of(path, "mod")
    first.save()
    assert found.imports.at_once.names == ("one",)
    data = json.loads(memory.read_text())
    data["files"][str(path)][4][0] = ["kept"]
    memory.write_text(json.dumps(data))
    assert SourceFiles(memory).of(path, "mod").imports.at_once.names == ("kept",)
    path.write_text("import two_now\n")
    assert SourceFiles(memory).of(path, "mod").imports.at_once.names == ("two_now",)


def test_an_edit_of_the_same_length_is_seen_by_its_time(tmp_path: Path) -> None:
    path, memory = tmp_path / "mod.py", tmp_path / "sources.json"
    path.write_text("import one\n")
    first = SourceFiles(memory)
    first.of(path, "mod")
    first.save()
    path.write_text("import two\n")
    os.utime(path, ns=(1, 1))
    assert SourceFiles(memory).of(path, "mod").imports.at_once.names == ("two",)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 0, "files": {}}', '{"version": 1, "files": {"a": [1]}}'])
def test_a_memory_that_says_nothing_is_made_anew(tmp_path: Path, text: str) -> None:
    path, memory = tmp_path / "mod.py", tmp_path / "sources.json"
    path.write_text("import one\n")
    memory.write_text(text)
    files = SourceFiles(memory)
    assert files.of(path, "mod").imports.at_once.names == ("one",)
    files.save()
    assert str(path) in json.loads(memory.read_text())["files"]


def test_a_memory_that_cannot_be_written_costs_time_alone(tmp_path: Path) -> None:
    path = tmp_path / "mod.py"
    path.write_text("import one\n")
    files = SourceFiles(path / "no" / "folder.json")
    files.of(path, "mod")
    files.save()


def test_what_python_cannot_read_imports_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mod.py"
    path.write_text("def (:\n")
    assert SourceFiles(None).of(path, "mod").imports == ModuleImports()

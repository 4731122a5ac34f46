"""What README and recipes' page show is what bolt-build takes, and what compilers take."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from bolt_build import runtime
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import Recipe

ROOT = Path(__file__).parents[2]
PROGRAM = """\
#include <stdio.h>
#include "bolt_engine.h"
#ifdef __cplusplus
extern "C"
#endif
const bolt_engine_v1* resnet50_bolt_v1(void);
void classify(const void* const* inputs, void* const* outputs) {{
{shown}
}}
"""


def shown_behind(line: str, page: str = "README.md") -> str:
    """The first block of code behind a line of a page."""
    behind = (ROOT / page).read_text(encoding="utf-8").partition(f"\n{line}\n")[2].strip("\n")
    return textwrap.dedent(behind.split("\n\n")[0]) + "\n"


def recipe_of(folder: Path, shown: str, name: str, model: str) -> Recipe:
    recipe = folder / name
    recipe.write_text(shown, encoding="utf-8")
    (folder / model).parent.mkdir(exist_ok=True)
    (folder / model).write_bytes(b"not read here")
    return load_recipe(recipe)


def test_its_recipe_is_valid(tmp_path: Path) -> None:
    line = "A recipe is a YAML file. It declares what to build, never how. This one has every kind of key:"
    loaded = recipe_of(tmp_path, shown_behind(line, "docs/recipes.md"), "resnet50.yaml", "models/resnet50.onnx")
    assert loaded.name == "resnet50"
    assert [spec.name for spec in loaded.targets] == ["host", "h200"]


def test_a_model_of_ones_own_is_computed_in_what_targets_are_best_at(tmp_path: Path) -> None:
    line = "A model of your own needs four lines. `bolt-build init` writes them, and says what would not build."
    loaded = recipe_of(tmp_path, shown_behind(line), "net.yaml", "net.onnx")
    assert [(spec.name, spec.precision) for spec in loaded.targets] == [("host", "fp32"), ("h200", "fp16")]


@pytest.mark.parametrize("compiler", [("gcc", "-std=c11", "-xc"), ("g++", "-std=c++20", "-xc++")], ids=["c", "c++"])
def test_its_program_compiles(tmp_path: Path, compiler: tuple[str, ...]) -> None:
    source = tmp_path / "program"
    source.write_text(PROGRAM.format(shown=shown_behind("From C or C++:")))
    command = [*compiler, "-Wall", "-Werror", "-fsyntax-only", f"-I{runtime.include_dir()}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

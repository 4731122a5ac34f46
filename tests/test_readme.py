"""What the README shows is what bolt-build takes."""

from __future__ import annotations

import textwrap
from pathlib import Path

from bolt_build.schema import load_recipe

README = Path(__file__).parents[1] / "README.md"


def test_its_recipe_is_valid(tmp_path: Path) -> None:
    shown = README.read_text(encoding="utf-8").partition("\n## Recipes\n")[2].strip("\n").split("\n\n")[0]
    recipe = tmp_path / "resnet50.yaml"
    recipe.write_text(textwrap.dedent(shown), encoding="utf-8")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "resnet50.onnx").write_bytes(b"not read here")
    loaded = load_recipe(recipe)
    assert loaded.name == "resnet50"
    assert [spec.name for spec in loaded.targets] == ["host", "h200"]

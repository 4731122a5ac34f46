"""`extend`: what a recipe inherits, in what order, and where what is wrong stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_complaints import complaint

from bolt_build.schema.expand import flatten
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import LayerSpec, TargetSpec

BASE = """\
bolt: 1
name: base
model: {zoo: resnet50, batch: [1, 32], dims: {a: 1, b: 2}}
targets: {host: {precision: bf16}}
layers:
  "fc*": {precision: fp32}
  "conv*": {precision: fp32}
verify: {samples: 9, seed: 7}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_mappings_merge_and_everything_else_replaces() -> None:
    write("base.yaml", BASE)
    recipe = load_recipe(
        write("small.yaml", "bolt: 1\nextend: base.yaml\nmodel: {batch: 4, dims: {b: 3}}\nverify: {samples: 1}\n")
    )
    assert recipe.model.zoo == "resnet50"
    assert recipe.model.batch == (4,)
    assert dict(recipe.model.dims) == {"a": 1, "b": 3}
    assert recipe.targets == (TargetSpec("host", "bf16"),)
    assert (recipe.verify.samples, recipe.verify.seed) == (1, 7)


def test_a_recipe_names_itself() -> None:
    write("base.yaml", BASE)
    assert load_recipe(write("small.yaml", "bolt: 1\nextend: base.yaml\n")).name == "small"


def test_nothing_in_place_of_a_mapping_takes_the_defaults_back() -> None:
    write("base.yaml", BASE)
    recipe = load_recipe(write("small.yaml", "bolt: 1\nextend: base.yaml\ntargets: {host: }\n"))
    assert recipe.targets == (TargetSpec("host", "fp32"),)


def test_a_recipes_own_layers_are_the_last_to_match() -> None:
    write("base.yaml", BASE)
    recipe = load_recipe(
        write("small.yaml", 'bolt: 1\nextend: base.yaml\nlayers: {"*": {precision: bf16}, "fc*": {precision: bf16}}\n')
    )
    assert recipe.layers == (LayerSpec("conv*", "fp32"), LayerSpec("*", "bf16"), LayerSpec("fc*", "bf16"))


def test_a_chain_over_folders_resolves_each_path_from_the_file_that_says_it() -> None:
    write("models/net.onnx", "")
    write("models/base.yaml", "bolt: 1\nmodel: {onnx: net.onnx}\n")
    write("mid/mid.yaml", "bolt: 1\nextend: ../models/base.yaml\ntargets: {host: }\n")
    recipe = load_recipe(write("top.yaml", "bolt: 1\nextend: mid/mid.yaml\n"))
    assert recipe.model.onnx == str(Path("models/net.onnx").absolute())
    mark = recipe.mark("model.onnx")
    assert mark is not None
    assert (mark.file, mark.line, mark.column) == ("models/base.yaml", 2, 15)
    assert dict(flatten(recipe))["model.onnx"] == '"models/net.onnx"'


def test_mistakes_point_into_the_file_where_they_stand() -> None:
    write("lib/base.yaml", BASE.replace("samples", "sample"))
    path = write("small.yaml", "bolt: 1\nextend: lib/base.yaml\nverify: {seed: -1}\n")
    assert (
        complaint(path)
        == """\
small.yaml:3:16: error[bad-value]: 'verify.seed' must be at least 0, found -1
  3 | verify: {seed: -1}
    |                ^^
lib/base.yaml:8:10: error[unknown-key]: 'sample' is not a key of 'verify'
  8 | verify: {sample: 9, seed: 7}
    |          ^^^^^^ did you mean 'samples'?
"""
    )


def test_both_models_where_one_is_inherited() -> None:
    write("base.yaml", BASE)
    write("net.onnx", "")
    path = write("small.yaml", "bolt: 1\nextend: base.yaml\nmodel: {onnx: net.onnx}\n")
    assert (
        complaint(path)
        == """\
small.yaml:3:9: error[bad-value]: 'model' has 'zoo' and 'onnx', and may have only one of them
  3 | model: {onnx: net.onnx}
    |         ^^^^ 'zoo' is at base.yaml:3
"""
    )


def test_a_base_that_is_not_there() -> None:
    assert (
        complaint(write("small.yaml", "bolt: 1\nextend: gone.yaml\n"))
        == """\
small.yaml:2:9: error[no-such-file]: 'gone.yaml': no such recipe
  2 | extend: gone.yaml
    |         ^^^^^^^^^
"""
    )


def test_a_base_that_is_no_path() -> None:
    assert (
        complaint(write("small.yaml", 'bolt: 1\nextend: "a\\0b"\n'))
        == """\
small.yaml:2:9: error[bad-value]: 'extend' holds a NUL
  2 | extend: "a\\0b"
    |         ^^^^^^
"""
    )


def test_a_base_that_is_not_yaml_and_a_recipe_with_mistakes_are_both_reported() -> None:
    write("base.yaml", "a: [\n")
    assert (
        complaint(write("small.yaml", "bolt: 1\nextend: base.yaml\nextend: other.yaml\n"))
        == """\
small.yaml:3:1: error[duplicate-key]: 'extend' is here a second time
  3 | extend: other.yaml
    | ^^^^^^ first at line 2
base.yaml:2:1: error[yaml-syntax]: did not find expected node content, while parsing a flow node
  2 |
    | ^
"""
    )


def test_recipes_that_extend_each_other() -> None:
    write("a.yaml", "bolt: 1\nextend: lib/b.yaml\n")
    write("lib/b.yaml", "bolt: 1\nextend: ../a.yaml\n")
    assert (
        complaint(Path("a.yaml"))
        == """\
lib/b.yaml:2:9: error[extend-cycle]: recipes extend each other: a.yaml -> lib/b.yaml -> a.yaml
  2 | extend: ../a.yaml
    |         ^^^^^^^^^
"""
    )


def test_a_base_needs_its_format_version_too() -> None:
    write("base.yaml", BASE.removeprefix("bolt: 1\n"))
    assert (
        complaint(write("small.yaml", "bolt: 1\nextend: base.yaml\n"))
        == """\
base.yaml:1:1: error[missing-key]: a recipe needs the key 'bolt'
  1 | name: base
    | ^ add 'bolt: 1'
"""
    )


def test_a_base_of_a_newer_format() -> None:
    write("base.yaml", "bolt: 9\nnew: key\n")
    assert (
        complaint(write("small.yaml", "bolt: 1\nextend: base.yaml\n"))
        == """\
base.yaml:1:7: error[newer-version]: recipe format 9 is newer than this bolt-build, which reads format 1
  1 | bolt: 9
    |       ^ update the checkout that bolt-build was installed from, and install it again
"""
    )


def test_something_else_than_a_name() -> None:
    assert (
        complaint(write("small.yaml", "bolt: 1\nextend: [base.yaml]\nmodel: {zoo: resnet50}\ntargets: {host: }\n"))
        == """\
small.yaml:2:9: error[wrong-type]: 'extend' must be a string, found a list
  2 | extend: [base.yaml]
    |         ^^^^^^^^^^^
"""
    )

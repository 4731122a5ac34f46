"""From a file to a `Recipe` and back to text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.errors import BoltError, Mark
from bolt_build.schema.durations import duration_of, seconds_of
from bolt_build.schema.expand import expand, flatten
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import (
    EngineSpec,
    FusionPolicy,
    IoSpec,
    LayerSpec,
    ModelSpec,
    PaddingPolicy,
    Policy,
    Recipe,
    TargetSpec,
    TuningSpec,
    VerifySpec,
)

ROOT = Path(__file__).parents[2]


def write(folder: Path, text: str, name: str = "net.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def without_place(recipe: Recipe) -> Recipe:
    """What a recipe says, apart from where it stands."""
    return dataclasses.replace(recipe, path="", marks=())


def test_the_shortest_recipe_has_every_default(tmp_path: Path) -> None:
    path = write(tmp_path, "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\n")
    assert without_place(load_recipe(path)) == Recipe(
        path="",
        name="net",
        model=ModelSpec(onnx=None, zoo="resnet50", batch=(), sizes=()),
        targets=(TargetSpec("host", "fp32"),),
        policy=Policy(FusionPolicy(epilogue=True)),
        layers=(),
        engine=EngineSpec(IoSpec("model", "model")),
        verify=VerifySpec("onnxruntime", 4, 0),
        marks=(),
    )


def test_a_recipe_that_says_everything(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "real.npz").touch()
    path = write(
        tmp_path,
        """\
bolt: 1
name: other
model: {onnx: m.onnx, batch: 8, dims: {height: 224}}
targets: {host: {precision: bf16}}
policy: {fusion: {epilogue: false, persistent: never}, padding: {mode: always, alignment: 4}, skip: [gate-sums]}
layers:
  "/fc/*": {precision: fp32}
  12: {precision: bf16, persistent: always, padding: never}
  a: {persistent: auto, tolerance: 1}
engine: {io: {dtype: fp32, layout: channels_last}}
verify: {against: onnxruntime, samples: 1, seed: 3, tolerance: 1e-3, inputs: data/real.npz}
tuning: {candidates: 30, budget: 90s, lock: locks/net.yaml, foreign: true}
""",
    )
    assert without_place(load_recipe(path)) == Recipe(
        path="",
        name="other",
        model=ModelSpec(onnx=str(tmp_path / "m.onnx"), zoo=None, batch=(8,), sizes=(("height", (224,)),)),
        targets=(TargetSpec("host", "bf16"),),
        policy=Policy(
            FusionPolicy(epilogue=False, persistent="never"),
            PaddingPolicy("always", 4, (("12", "never"),)),
            ("gate-sums",),
        ),
        layers=(
            LayerSpec("/fc/*", "fp32"),
            LayerSpec("12", "bf16", "always", padding="never"),
            LayerSpec("a", None, "auto", 1),
        ),
        engine=EngineSpec(IoSpec("fp32", "channels_last")),
        verify=VerifySpec("onnxruntime", 1, 3, 1e-3, str(tmp_path / "data" / "real.npz")),
        marks=(),
        tuning=TuningSpec(30, 90, str(tmp_path / "locks" / "net.yaml"), foreign=True),
    )


@pytest.mark.parametrize(("written", "batches"), [("8", (8,)), ("[1, 8]", (1, 8))])
def test_a_target_may_have_batches_of_its_own(written: str, batches: tuple[int, ...], tmp_path: Path) -> None:
    text = f"bolt: 1\nmodel: {{zoo: resnet50, batch: [1, 32]}}\ntargets: {{host: {{batch: {written}}}, h200: "
    path = write(tmp_path, text + "{precision: fp16}}\n")
    recipe = load_recipe(path)
    host, gpu = recipe.targets
    assert (host, gpu) == (TargetSpec("host", "fp32", batches), TargetSpec("h200", "fp16"))
    assert (recipe.batches(host), recipe.batches(gpu)) == (batches, (1, 32))
    path.write_text(expand(recipe))
    assert without_place(load_recipe(path)) == without_place(recipe)
    assert dict(flatten(recipe))["targets.host.batch"] == str(list(batches))
    assert "targets.h200.batch" not in dict(flatten(recipe))


def test_marks_of_dotted_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "bolt: 1\nmodel:\n  zoo: resnet50\ntargets: {host: }\n")
    recipe = load_recipe(path)
    assert recipe.mark("model.zoo") == Mark(str(path), 3, 8, 8)
    assert recipe.mark("model.dims.height") == Mark(str(path), 2, 1, 5)
    assert recipe.mark("policy.fusion.epilogue") is None


def test_expand_writes_every_default(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    path = write(tmp_path, "bolt: 1\nmodel: {onnx: ./m.onnx}\ntargets: {host: }\n")
    assert (
        expand(load_recipe(path))
        == """\
bolt: 1
name: net
model:
  onnx: m.onnx
  dims: {}
  fixed: {}
  inputs: []
  outputs: []
  variant: null
variants: {}
targets:
  host: {precision: fp32}
policy:
  fusion: {epilogue: true, persistent: auto}
  padding: {mode: auto, alignment: 8}
  skip: []
layers: {}
engine:
  io: {dtype: model, layout: model}
verify: {against: onnxruntime, samples: 4, seed: 0, tolerance: null, inputs: null}
tuning: {candidates: 6, budget: 20min, lock: null, engine: true, foreign: false}
"""
    )


def test_flatten_is_what_expand_writes(tmp_path: Path) -> None:
    layers = "layers: {a.b: {precision: bf16, padding: never}}"
    path = write(tmp_path, f"bolt: 1\nmodel: {{zoo: resnet50, batch: [1, 2]}}\ntargets: {{host: }}\n{layers}\n")
    assert flatten(load_recipe(path)) == (
        ("name", '"net"'),
        ("model.zoo", '"resnet50"'),
        ("model.batch", "[1, 2]"),
        ("model.inputs", "[]"),
        ("model.outputs", "[]"),
        ("model.variant", "null"),
        ("targets.host.precision", '"fp32"'),
        ("policy.fusion.epilogue", "true"),
        ("policy.fusion.persistent", '"auto"'),
        ("policy.padding.mode", '"auto"'),
        ("policy.padding.alignment", "8"),
        ("policy.skip", "[]"),
        ("layers.a.b.precision", '"bf16"'),
        ("layers.a.b.padding", '"never"'),
        ("engine.io.dtype", '"model"'),
        ("engine.io.layout", '"model"'),
        ("verify.against", '"onnxruntime"'),
        ("verify.samples", "4"),
        ("verify.seed", "0"),
        ("verify.tolerance", "null"),
        ("verify.inputs", "null"),
        ("tuning.candidates", "6"),
        ("tuning.budget", '"20min"'),
        ("tuning.lock", "null"),
        ("tuning.engine", "true"),
        ("tuning.foreign", "false"),
    )


def test_a_lock_is_relative_to_the_recipe_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    write(tmp_path / "base", "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\ntuning: {lock: net.lock.yaml}\n")
    recipe = load_recipe(write(tmp_path, "bolt: 1\nextend: base/net.yaml\ntuning: {candidates: 3}\n", "other.yaml"))
    assert recipe.tuning == TuningSpec(3, 1200, str(tmp_path / "base" / "net.lock.yaml"))
    assert "  lock: base/net.lock.yaml" in expand(recipe).replace("{", "\n  ").replace(", ", "\n  ")
    assert recipe.mark("tuning.lock") == Mark(str(tmp_path / "base" / "net.yaml"), 4, 16, 13)


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("90s", 90), ("20min", 1200), ("2h", 7200), ("60min", 3600)])
def test_durations(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds
    assert seconds_of(duration_of(seconds)) == seconds


@given(st.integers(1, 10**9))
def test_a_duration_is_written_as_the_seconds_that_it_is_read_as(seconds: int) -> None:
    assert seconds_of(duration_of(seconds)) == seconds


def test_flatten_shows_the_key_that_changed(tmp_path: Path) -> None:
    text = "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\n"
    before = load_recipe(write(tmp_path, text))
    after = load_recipe(write(tmp_path, text + "# a remark\nverify: {samples: 5}\n"))
    assert set(flatten(before)) ^ set(flatten(after)) == {("verify.samples", "4"), ("verify.samples", "5")}


def test_a_recipe_that_moves_with_its_model_has_not_changed(tmp_path: Path) -> None:
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.onnx").touch()
        found.append(
            flatten(load_recipe(write(tmp_path / name, "bolt: 1\nmodel: {onnx: m.onnx}\ntargets: {host: }\n")))
        )
    assert found[0] == found[1]


_WORDS = st.sampled_from(
    ["no", "1e3", "0o7", "12:30", "null", "~", "conv.1", "/a/*", "<<", "a b", "é", "'", "#x", "- a"]
)
_NAMES = _WORDS | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=10)
_PRECISIONS = st.sampled_from(["fp32", "bf16"])
_WISHES = st.sampled_from(["auto", "always", "never"])
_TOLERANCES = st.none() | st.floats(1e-9, 1.0)
_LAYERS = st.tuples(st.none() | _PRECISIONS, st.none() | _WISHES, _TOLERANCES).filter(any)


@given(
    batch=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=4, unique=True),
    dims=st.dictionaries(_NAMES, st.integers(1, 4096), max_size=3),
    layers=st.dictionaries(_NAMES, _LAYERS, max_size=3),
    zoo=_NAMES,
    precision=_PRECISIONS,
    fusion=st.tuples(st.booleans(), _WISHES),
    seed=st.integers(0, 2**32 - 1),
    tolerance=_TOLERANCES,
)
@settings(max_examples=100, deadline=None)
def test_an_expanded_recipe_loads_to_an_equal_one(
    tmp_path: Path,
    batch: list[int],
    dims: dict[str, int],
    layers: dict[str, tuple[str | None, str | None, float | None]],
    zoo: str,
    precision: str,
    fusion: tuple[bool, str],
    seed: int,
    tolerance: float | None,
) -> None:
    recipe = Recipe(
        path=str(tmp_path / "net.yaml"),
        name="net",
        model=ModelSpec(None, zoo, tuple(batch), tuple((name, (extent,)) for name, extent in dims.items())),
        targets=(TargetSpec("host", precision),),
        policy=Policy(FusionPolicy(*fusion)),
        layers=tuple(LayerSpec(match, *values) for match, values in layers.items()),
        engine=EngineSpec(IoSpec("bf16", "row")),
        verify=VerifySpec("onnxruntime", 2, seed, tolerance),
        marks=(),
    )
    again = load_recipe(write(tmp_path, expand(recipe)))
    assert without_place(again) == without_place(recipe)
    assert flatten(again) == flatten(recipe)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.name)
def test_bundled_recipes_load_and_point_editors_to_the_schema(path: Path) -> None:
    load_recipe(path)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    assert (path.parent / first.removeprefix(prefix)).resolve() == ROOT / "bolt_build/schema/recipe.schema.json"


def test_what_expand_writes_is_yaml_to_others_too(tmp_path: Path) -> None:
    """A reader of YAML 1.1 sees the same strings."""
    path = write(tmp_path, 'bolt: 1\nmodel: {zoo: "no"}\ntargets: {host: }\nlayers: {"1e3": {precision: fp32}}\n')
    data = yaml.safe_load(expand(load_recipe(path)))
    assert data["model"]["zoo"] == "no"
    assert list(data["layers"]) == ["1e3"]


def test_a_dimension_of_size_0_is_none_to_plan_with(tmp_path: Path) -> None:
    path = write(tmp_path, "bolt: 1\nmodel: {zoo: bert_base, dims: {past: 0, width: 7}}\ntargets: {host: }\n")
    found = load_recipe(path).model
    assert (found.empty, found.dims, found.lengths, found.largest) == (("past",), (("width", 7),), (), (("width", 7),))


def test_a_dimension_of_size_0_has_no_other(tmp_path: Path) -> None:
    path = write(tmp_path, "bolt: 1\nmodel: {zoo: bert_base, dims: {past: [0, 7]}}\ntargets: {host: }\n")
    with pytest.raises(BoltError) as raised:
        load_recipe(path)
    assert [each.message for each in raised.value.diagnostics] == ["'model.dims.past[0]' must be at least 1, found 0"]


def test_a_dimension_may_have_several_extents(tmp_path: Path) -> None:
    text = (
        "bolt: 1\nmodel: {zoo: bert_base, dims: {sequence: [384, 64, 128], width: [7], height: 5}}\ntargets: {host: }\n"
    )
    path = write(tmp_path, text)
    recipe = load_recipe(path)
    assert recipe.model.dims == (("width", 7), ("height", 5))
    assert recipe.model.lengths == (("sequence", (64, 128, 384)),)
    assert recipe.model.largest == (("width", 7), ("height", 5), ("sequence", 384))
    path.write_text(expand(recipe))
    assert without_place(load_recipe(path)) == without_place(recipe)
    assert dict(flatten(recipe))["model.dims.sequence"] == "[64, 128, 384]"

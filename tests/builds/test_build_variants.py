"""The ONNX file of a variant: written once, and again only when what it follows from has changed."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from graph_models import model, node, ones, saved, tensor
from onnx.external_data_helper import convert_model_to_external_data
from zoo_checks import assert_depends_on_its_input

from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.planning.model_file import ModelFile, model_file
from bolt_build.cli.recipe_file import checked_recipe
from bolt_build.errors import BoltError, ExitCode
from bolt_build.graph.onnx_import import load_model
from bolt_build.report.diagnostics import render

RECIPE = """\
bolt: 1
model: {onnx: net.onnx}
targets: {host: {precision: fp32}}
variants:
  gelu: {activation: gelu}
  deep: {deepen: {behind: conv}}
  wrong: {activation: {to: gelu, match: "conv"}, deepen: {behind: "c?"}}
"""


def network(scale: float = 1.0) -> onnx.ModelProto:
    nodes = [node("Conv", "x w", "c", "conv", pads=[1, 1, 1, 1]), node("Relu", "c", "y", "act")]
    return model(nodes, constants={"w": scale * ones(4, 3, 3, 3)})


class Place:
    """A recipe's directory, and what was said when its model was looked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []
        (path / "net.yaml").write_text(RECIPE)
        onnx.save(network(), str(path / "net.onnx"))

    def prepare(self, variant: str) -> ModelFile:
        self.said.clear()
        recipe = checked_recipe(Path(f"net.yaml@{variant}"))
        return model_file(recipe, RecipeDirectory(self.path / "out" / recipe.name), (), self.said.append)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


def test_a_variant_is_written_once(place: Place) -> None:
    first = place.prepare("gelu")
    assert first.path == place.path / "out" / "net_gelu" / "model.onnx"
    assert [text.replace(str(place.path), "") for text in place.said] == [
        "writing the variant 'gelu' of /net.onnx to /out/net_gelu/model.onnx",
        "net_gelu: gelu in the place of 1 activation",
    ]
    assert "Erf" in {each.op_type for each in onnx.load(first.path).graph.node}
    assert place.prepare("gelu") == first
    assert place.said == []


def test_another_name_or_another_variant_in_the_recipe_writes_nothing(place: Place) -> None:
    place.prepare("gelu")
    text = RECIPE.replace("deep: {deepen: {behind: conv}}", "other: {activation: silu}") + "# a comment\n"
    (place.path / "net.yaml").write_text(text)
    place.prepare("gelu")
    assert place.said == []


@pytest.mark.parametrize("change", ["variant", "model", "file"])
def test_it_is_written_again_where_what_it_follows_from_has_changed(place: Place, change: str) -> None:
    first = place.prepare("gelu")
    if change == "variant":
        (place.path / "net.yaml").write_text(RECIPE.replace("{activation: gelu}", "{activation: silu}"))
    elif change == "model":
        onnx.save(network(2.0), str(place.path / "net.onnx"))
    else:
        first.path.write_bytes(b"mine")
    second = place.prepare("gelu")
    assert place.said[0].startswith("writing the variant 'gelu'")
    assert (second.digest == first.digest) == (change == "file")


def test_the_same_bytes_are_written_every_time(place: Place) -> None:
    first = place.prepare("deep")
    first.path.unlink()
    assert place.prepare("deep").digest == first.digest


FIXED = """\
bolt: 1
model: {onnx: rate.onnx, fixed: {rate: 16000}}
targets: {host: {precision: fp32}}
variants:
  gelu: {activation: gelu}
"""


def with_a_rate(path: Path) -> onnx.ModelProto:
    """The network, whose results are scaled by an input of one number."""
    nodes = [
        *network().graph.node[:1],
        node("Cast", "rate", "r", to=1),
        node("Mul", "c r", "m"),
        node("Relu", "m", "y"),
    ]
    ports = [tensor("x", [1, 3, 8, 8]), tensor("rate", [], onnx.TensorProto.INT64)]
    proto = model(nodes, ports, constants={"w": ones(4, 3, 3, 3)})
    onnx.save(proto, str(path / "rate.onnx"))
    return proto


def test_a_model_with_a_fixed_input_is_written_once(place: Place) -> None:
    with_a_rate(place.path)
    (place.path / "net.yaml").write_text(FIXED)
    recipe = checked_recipe(Path("net.yaml"))
    directory = RecipeDirectory(place.path / "out" / recipe.name)
    first = model_file(recipe, directory, (), place.said.append)
    assert [text.replace(str(place.path), "") for text in place.said] == [
        "writing /rate.onnx with 'rate' fixed to /out/net/model.onnx"
    ]
    written = onnx.load(first.path).graph
    assert [each.name for each in written.input] == ["x"]
    assert [each.name for each in written.initializer] == ["w", "rate"]
    assert model_file(recipe, directory, (), place.said.append) == first
    (place.path / "net.yaml").write_text(FIXED.replace("16000", "8000"))
    assert model_file(checked_recipe(Path("net.yaml")), directory, (), place.said.append).digest != first.digest
    assert len(place.said) == 2


def test_weights_of_a_model_that_is_written_may_lie_in_a_folder_whose_name_is_not_utf8(place: Place) -> None:
    proto = with_a_rate(place.path)
    convert_model_to_external_data(proto, location="rate.data", size_threshold=0)
    onnx.save(proto, str(place.path / "rate.onnx"))
    folder = place.path / os.fsdecode(b"of Latin-1 \xe9")
    folder.mkdir()
    for name in ("rate.onnx", "rate.data"):
        (place.path / name).rename(folder / name)
    (folder / "net.yaml").write_text(FIXED)
    recipe = checked_recipe(folder / "net.yaml")
    written = model_file(recipe, RecipeDirectory(place.path / "out" / recipe.name), (), place.said.append)
    assert [each.name for each in onnx.load(written.path).graph.initializer] == ["w", "rate"]


def test_a_variant_has_the_fixed_inputs_of_its_recipe(place: Place) -> None:
    with_a_rate(place.path)
    (place.path / "net.yaml").write_text(FIXED)
    found = onnx.load(place.prepare("gelu").path).graph
    assert [each.name for each in found.input] == ["x"]
    assert "Erf" in {each.op_type for each in found.node}


def test_an_input_of_size_0_is_left_out_of_the_model(place: Place) -> None:
    """The dimensions that are left are those that the model is planned with."""
    inputs = [tensor("x", ["batch", "tokens", 4]), tensor("seen", ["batch", "past", 4])]
    saved(place.path, model([node("Concat", "seen x", "y", axis=1)], inputs), "step.onnx")
    recipe_text = "bolt: 1\nmodel: {onnx: step.onnx, dims: {past: 0, tokens: 2}}\ntargets: {host: }\n"
    (place.path / "net.yaml").write_text(recipe_text)
    recipe = checked_recipe(Path("net.yaml"))
    directory = RecipeDirectory(place.path / "out" / recipe.name)
    found = model_file(recipe, directory, (), place.said.append)
    assert [text.replace(str(place.path), "") for text in place.said] == [
        "writing /step.onnx with 'past' of size 0 to /out/net/model.onnx"
    ]
    graph = load_model(Path(found.path)).bind(3, recipe.model.dims)
    assert (graph.inputs, graph.type("y").shape) == (("x",), (3, 2, 4))
    (place.path / "net.yaml").write_text(recipe_text.replace("past", "pats"))
    with pytest.raises(BoltError) as raised:
        model_file(checked_recipe(Path("net.yaml")), directory, (), place.said.append)
    assert render(raised.value.diagnostics, color=False) == (
        "net.yaml:2:39: error[bad-empty-input]: model.dims sets 'pats', which no input has\n"
        "  2 | model: {onnx: step.onnx, dims: {pats: 0, tokens: 2}}\n"
        f"    |{' ' * 39}^ did you mean 'past'?\n"
    )


def test_a_fixed_input_that_does_not_fit_is_told_with_its_place(place: Place) -> None:
    with_a_rate(place.path)
    (place.path / "net.yaml").write_text(FIXED.replace("{rate: 16000}", "{rate: 0.5, rat: 1}"))
    with pytest.raises(BoltError) as raised:
        model_file(checked_recipe(Path("net.yaml")), RecipeDirectory(place.path / "out"), (), place.said.append)
    line = "  2 | model: {onnx: rate.onnx, fixed: {rate: 0.5, rat: 1}}\n"
    assert render(raised.value.diagnostics, color=False) == (
        f"net.yaml:2:40: error[bad-fixed-input]: 'rate' is int64, and 0.5 is not\n{line}"
        f"    |{' ' * 40}^^^ it takes whole numbers, without a point\n"
        f"net.yaml:2:50: error[bad-fixed-input]: the model has no input 'rat'\n{line}"
        f"    |{' ' * 50}^ did you mean 'rate'?\n"
    )
    assert list((place.path / "out").iterdir()) == []


def test_a_model_ends_at_the_outputs_of_its_recipe(place: Place) -> None:
    with_a_rate(place.path)
    (place.path / "net.yaml").write_text(FIXED.replace("fixed: {rate: 16000}", "outputs: [c]"))
    found = model_file(
        checked_recipe(Path("net.yaml")), RecipeDirectory(place.path / "out" / "net"), (), place.said.append
    )
    assert [text.replace(str(place.path), "") for text in place.said] == [
        "writing /rate.onnx up to 'c' to /out/net/model.onnx"
    ]
    graph = onnx.load(found.path).graph
    assert ([each.name for each in graph.input], [each.name for each in graph.output]) == (["x"], ["c"])


def test_outputs_that_the_model_has_not_are_told_with_their_place(place: Place) -> None:
    with_a_rate(place.path)
    (place.path / "net.yaml").write_text(FIXED.replace("16000}", "16000}, outputs: [x, mm]"))
    with pytest.raises(BoltError) as raised:
        model_file(checked_recipe(Path("net.yaml")), RecipeDirectory(place.path / "out"), (), place.said.append)
    line = "  2 | model: {onnx: rate.onnx, fixed: {rate: 16000}, outputs: [x, mm]}\n"
    mark = f"    |{' ' * 57}^^^^^^^"
    assert render(raised.value.diagnostics, color=False) == (
        f"net.yaml:2:57: error[bad-output]: 'x' goes into the model: no node computes it\n{line}{mark}\n"
        f"net.yaml:2:57: error[bad-output]: the model has no tensor 'mm'\n{line}{mark} did you mean 'm'?\n"
    )


def test_weights_beside_the_model_come_into_the_variants_file(place: Place) -> None:
    proto = network()
    convert_model_to_external_data(proto, location="net.data", size_threshold=0)
    onnx.save(proto, str(place.path / "net.onnx"))
    first = place.prepare("gelu")
    kept = onnx.load(first.path, load_external_data=False).graph.initializer
    assert {item.data_location for item in kept} == {onnx.TensorProto.DEFAULT}
    assert next(item for item in kept if item.name == "w").dims == [4, 3, 3, 3]
    data = (place.path / "net.data").read_bytes()
    (place.path / "net.data").write_bytes(data[::-1])
    assert place.prepare("gelu").digest != first.digest


def test_what_does_not_fit_is_told_with_its_place_and_leaves_nothing(place: Place) -> None:
    with pytest.raises(BoltError) as raised:
        place.prepare("wrong")
    assert raised.value.exit_code is ExitCode.INVALID
    hint = "activations are Relu, LeakyRelu, PRelu, Elu, Selu, Celu, HardSwish, Gelu, Swish, Softplus, Mish nodes"
    line = '  7 |   wrong: {activation: {to: gelu, match: "conv"}, deepen: {behind: "c?"}}\n'
    assert render(raised.value.diagnostics, color=False) == (
        f"net.yaml:7:67: error[no-match]: 'c?' matches no node of the model\n{line}"
        f"    |{' ' * 67}^^^^\n"
        f"net.yaml:7:41: error[nothing-to-swap]: 'conv' matches no activation: only Conv\n{line}"
        f"    |{' ' * 41}^^^^^^ {hint}\n"
    )
    assert list((place.path / "out" / "net_wrong").iterdir()) == []


def test_a_model_that_cannot_be_read_is_told_of(place: Place) -> None:
    (place.path / "net.onnx").write_bytes(b"no model")
    with pytest.raises(BoltError) as raised:
        place.prepare("gelu")
    assert raised.value.exit_code is ExitCode.INVALID
    assert [each.code for each in raised.value.diagnostics] == ["not-onnx"]


def test_a_variant_of_a_zoo_model_is_calibrated_as_a_whole(place: Place) -> None:
    text = RECIPE.replace("onnx: net.onnx", "zoo: repvgg_a0").replace(
        "behind: conv}", 'behind: "/stage[0-3]*/rbr_dense/*"}'
    )
    (place.path / "net.yaml").write_text(text)
    path = place.prepare("deep").path
    assert place.said[0] == f"writing the variant 'deep' of the zoo's repvgg_a0 to {path}"
    assert place.said[1:] == ["net_deep: deepened by 21 1x1 convolutions"]
    weights = {item.name: onnx.numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}
    new = [array for name, array in weights.items() if name.endswith("deepen.weight")]
    assert len(new) == 21
    assert all(array.std() > 0 for array in new)
    assert_depends_on_its_input(path)
    place.prepare("deep")
    assert place.said == []

"""The zoo's encoders: the published architectures, weights that are drawn as they are written, and outputs that depend
on what comes in. Small variants stand for them where weights have to be there."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from bolt_build.graph import zoo
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.padding import PaddedPorts, padded_ports
from bolt_build.graph.zoo import bert, vit, whisper
from bolt_build.graph.zoo.samples import sample
from bolt_build.graph.zoo.seeded import Seeded
from bolt_build.schema.load import load_recipe
from bolt_build.verify.compare import dependence

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SMALL_BERT = bert.Bert(2, 128, 4, 256, vocabulary=300, positions=64)
SMALL_VIT = vit.Vit(16, 2, 128, 4, 256, 40, image=64)
SMALL = {
    "bert": lambda: bert.build("bert", SMALL_BERT),
    "distilbert": lambda: bert.build("distilbert", bert.Bert(2, 128, 4, 256, 300, 64, typed=False)),
    "vit": lambda: vit.build_vit("vit", SMALL_VIT),
    "clip": lambda: vit.build_clip_vision("clip", SMALL_VIT),
    "whisper": lambda: whisper.build("whisper", whisper.Whisper(20, 50, 2, 128, 4, 256)),
}


def parameters(model: Seeded) -> int:
    return sum(prod(item.dims) for item in model.model.graph.initializer)


def inputs(model: onnx.ModelProto, count: int) -> dict[str, Array]:
    """`count` different inputs: tokens of a small vocabulary, images, or sound."""
    (port,) = model.graph.input
    shape = [dim.dim_value or 24 for dim in port.type.tensor_type.shape.dim][1:]
    if port.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        return {port.name: np.random.RandomState(1).randint(0, 300, (count, *shape))}
    return {port.name: sample((count, *shape), 1)}


def run(model: onnx.ModelProto, feed: dict[str, Array], *names: str) -> list[Array]:
    """The tensors called `names` besides the model's outputs."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    session = onnxruntime.InferenceSession(shown.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feed)
    return found


@pytest.mark.parametrize(
    ("build", "count"),
    [
        # As published, poolers left out: 109,482,240 are counted with BERT-base's, 335,141,888 with BERT-large's.
        (bert.build_base, 109_482_240 - (768 + 1) * 768),
        (bert.build_large, 335_141_888 - (1024 + 1) * 1024),
        (bert.build_distil, 66_362_880),
        (vit.build_b16, 86_567_656),
        (vit.build_clip, 87_456_000 + 768 * 512),
        (whisper.build_tiny, 8_208_384),
    ],
)
def test_it_has_the_published_number_of_parameters(build: Callable[[], Seeded], count: int) -> None:
    model = build()
    assert parameters(model) == count


def test_a_layer_of_bert_is_written_as_exporters_do() -> None:
    nodes = bert.build_base().model.graph.node
    layer = Counter(node.op_type for node in nodes if node.name.startswith("/encoder/layer/7/"))
    assert layer == {
        "MatMul": 8, "Add": 9, "Reshape": 4, "Transpose": 4, "Softmax": 1, "LayerNormalization": 2, "Erf": 1, "Mul": 2,
        "Div": 2, "Constant": 8,
    }  # fmt: skip
    first = Counter(node.op_type for node in nodes if node.name.startswith("/embeddings/"))
    assert first == {
        "Gather": 4, "Shape": 1, "Slice": 2, "Expand": 1, "Add": 2, "LayerNormalization": 1, "Constant": 7,
    }  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_what_is_written_is_the_drawn_model_and_depends_on_its_input(name: str) -> None:
    seeded, file = SMALL[name](), io.BytesIO()
    seeded.write(file, 50)
    model = onnx.load_model_from_string(file.getvalue())
    onnx.checker.check_model(model, full_check=True)
    drawn = {item.name: numpy_helper.to_array(item) for item in seeded.drawn(50).graph.initializer}
    assert {item.name for item in model.graph.initializer} == drawn.keys()
    for item in model.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(item), drawn[item.name])
        assert np.ptp(drawn[item.name]) > 0
    softmaxes = [node.output[0] for node in model.graph.node if node.op_type == "Softmax"]
    output, *weights = run(model, inputs(model, 3), *softmaxes)
    cosine = dependence(output.reshape(3, -1))
    assert cosine is not None
    assert cosine < 0.99
    # Heads look at a few places, or at many.
    for attention in weights:
        looked_at = np.exp(-(attention * np.log(attention + 1e-30)).sum(-1).mean((0, 2))) / attention.shape[-1]
        assert looked_at.min() < 0.6
        assert looked_at.max() > 0.8


def test_weights_of_another_seed_or_name_are_others_and_rows_that_are_mirrored_cancel() -> None:
    seeded = SMALL["bert"]()
    one, other = ({i.name: numpy_helper.to_array(i) for i in seeded.drawn(seed).graph.initializer} for seed in (50, 51))
    scope = "encoder.layer.0"
    assert not np.array_equal(one[f"{scope}.output.dense.weight"], other[f"{scope}.output.dense.weight"])
    key = "attention.self.key.weight"
    assert not np.array_equal(one[f"{scope}.{key}"], one[f"encoder.layer.1.{key}"])
    np.testing.assert_allclose(one[f"{scope}.output.dense.weight"].sum(0), 0.0, atol=1e-6)
    queries, keys = one[f"{scope}.attention.self.query.weight"], one[f"{scope}.{key}"]
    assert 0.15 < np.corrcoef(queries[:, :32].ravel(), keys[:, :32].ravel())[0, 1] < 0.35


def test_a_variant_has_other_activations_and_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert, "build_base", SMALL["bert"])

    def change(model: onnx.ModelProto) -> onnx.ModelProto:
        assert all(item.raw_data for item in model.graph.initializer)
        model.graph.name = "changed"
        return model

    zoo.write("bert_base", tmp_path / "plain.onnx")
    zoo.write("bert_base", tmp_path / "changed.onnx", change)
    plain, changed = (onnx.load(tmp_path / f"{name}.onnx").graph for name in ("plain", "changed"))
    assert (plain.name, changed.name) == ("bert", "changed")
    assert list(plain.initializer) == list(changed.initializer)


@pytest.mark.parametrize(
    ("name", "model", "dims"),
    [
        ("bert_base", "bert_base", (("sequence", 128),)),
        ("bert_base_40", "bert_base", (("sequence", 40),)),
        ("bert_base_384", "bert_base", (("sequence", 384),)),
        ("bert_base_masked", "bert_base_masked", ()),
        ("bert_large", "bert_large", (("sequence", 384),)),
        ("distilbert", "distilbert", (("sequence", 128),)),
        ("vit_b16", "vit_b16", ()),
        ("clip_vision", "clip_vision", ()),
        ("whisper_tiny_encoder", "whisper_tiny_encoder", ()),
    ],
)
def test_its_recipe_builds_for_the_gpu_and_a_small_batch_here(
    name: str, model: str, dims: tuple[tuple[str, int], ...]
) -> None:
    recipe = load_recipe(RECIPES / f"{name}.yaml")
    assert (recipe.name, recipe.model.zoo, recipe.model.dims) == (name, model, dims)
    h200, *h100, host = recipe.targets
    assert (h200.name, h200.precision, host.name, host.precision) == ("h200", "fp16", "host", "fp32")
    assert [(each.name, each.precision) for each in h100] in ([], [("h100", "fp16")])
    assert (recipe.batches(h200), recipe.batches(host)) == ((1, 32), (1,))


@pytest.mark.large
@pytest.mark.parametrize("name", ["bert_base", "bert_large", "distilbert", "clip_vision", "vit_b16"])
def test_the_published_size_depends_on_its_input(name: str, tmp_path: Path) -> None:
    zoo.write(name, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (port,) = session.get_inputs()
    tokens = np.random.RandomState(1).randint(0, 30522, (3, 40))
    feed = tokens if port.type == "tensor(int64)" else sample((3, *port.shape[1:]), 1)
    (output,) = session.run(None, {port.name: feed})
    cosine = dependence(output.reshape(3, -1))
    assert cosine is not None
    assert cosine < 0.95  # CLIP's outputs are of its class token, part of which all images share
    assert np.abs(output).max() < 100


def test_bert_with_a_mask_pads_its_lengths(tmp_path: Path) -> None:
    assert load_recipe(RECIPES / "bert_base_masked.yaml").model.lengths == (("sequence", (64, 128, 384)),)
    onnx.save(bert.build("masked", replace(SMALL_BERT, masked=True)).drawn(0), tmp_path / "masked.onnx")
    model = load_model(tmp_path / "masked.onnx")
    assert padded_ports(*model.graphs((2,), (), (("sequence", (24, 40)),))) == PaddedPorts(
        (("input_ids", (1,)), ("attention_mask", (1,)), ("last_hidden_state", (1,)))
    )
    ids = np.random.RandomState(1).randint(0, 300, (1, 9))
    session = onnxruntime.InferenceSession(str(tmp_path / "masked.onnx"), providers=["CPUExecutionProvider"])
    (alone,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    (longer,) = session.run(
        None, {name: np.pad(array, ((0, 0), (0, 31))) for name, array in
               (("input_ids", ids), ("attention_mask", np.ones_like(ids)))}
    )  # fmt: skip
    np.testing.assert_allclose(longer[:, :9], alone, atol=1e-5)

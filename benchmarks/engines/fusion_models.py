"""The models in which products follow each other, and all of them as one, so that one tuning serves every engine.

A kernel's problem does not depend on the model that it is in: of a model with all others side by side in it, `tune`
plans, compiles and measures each problem once, and its lock has the winners for each model alone, however its recipe
chooses between products in one kernel and apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper

from benchmarks import ROOT
from bolt_build.graph import zoo
from bolt_build.graph.variants import vary
from bolt_build.schema.load import load_recipe

BATCH = 32
ACTIVATIONS = ("gelu", "hardswish", "silu", "softplus")
MLPS = {"mlp_32768": (1024, (576, 128, 64, 16)), "mlp_128320": (4010, (96, 32, 96, 32))}
"""Rows of an image (32 images make Table 1's M) and the widths between three layers: two rows of Table 1 in one, 64 to
16 columns behind; and its last row, which goes back to where it came from and on."""


@dataclass(frozen=True)
class Model:
    """A model of the zoo, a variant of one as its recipe has it, or an MLP; `policies`: products follow each other in
    it. `base` is what a variant is compared with."""

    name: str
    recipe: str | None = None
    variant: str | None = None
    policies: bool = False

    @property
    def base(self) -> str | None:
        return None if self.variant is None else self.recipe


def _family(name: str, *variants: str) -> tuple[Model, ...]:
    found = (Model(f"{name}_{variant}", name, variant, variant == "deep") for variant in variants)
    return (Model(name, name), *found)


GROUPS: dict[str, tuple[Model, ...]] = {
    "activations": _family("repvgg_a0", *ACTIVATIONS),
    "repvgg_a0": _family("repvgg_a0", "deep"),
    "repvgg_a1": _family("repvgg_a1", "deep"),
    "repvgg_b0": _family("repvgg_b0", "deep"),
    "vgg16": (Model("vgg16", "vgg16", policies=True),),
    "resnet50": (Model("resnet50", "resnet50", policies=True),),
    **{name: (Model(name, policies=True),) for name in MLPS},
}
"""What is timed in one process, so that all of it compares."""


def write_model(model: Model, folder: Path) -> Path:
    """`folder`/<model>.onnx, where it is not there yet."""
    path = folder / f"{model.name}.onnx"
    if path.is_file():
        return path
    if model.recipe is None:
        onnx.save(_mlp(model.name), str(path))
        return path
    recipe = load_recipe(ROOT / "recipes" / f"{model.recipe}.yaml")
    assert recipe.model.zoo is not None, model
    variant = next((each for each in recipe.variants if each.name == model.variant), None)
    if variant is None:
        zoo.write(recipe.model.zoo, path)
    else:
        zoo.write(recipe.model.zoo, path, lambda whole: vary(whole, variant, draw=False).model)
    return path


def write_models(models: Sequence[Model], folder: Path, jobs: int) -> list[Path]:
    """Every model's file, several written at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(max(1, min(jobs, len(models)))) as pool:
        return list(pool.map(write_model, models, [folder] * len(models)))


def write_together(paths: Sequence[Path], to: Path) -> None:
    """One model with all of these side by side, names in each led by its file's."""
    nodes, inputs, outputs, constants, opsets = [], [], [], [], {}
    for path in paths:
        model = compose.add_prefix(onnx.load(str(path)), f"{path.stem}/")
        nodes += model.graph.node
        inputs += model.graph.input
        outputs += model.graph.output
        constants += model.graph.initializer
        opsets |= {each.domain: max(each.version, opsets.get(each.domain, 0)) for each in model.opset_import}
    for value in (*inputs, *outputs):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "N"
    graph = helper.make_graph(nodes, "together", inputs, outputs, constants)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), str(to))


def _mlp(name: str) -> onnx.ModelProto:
    """Three layers with biases, a ReLU behind each, in half precision throughout."""
    rows, widths = MLPS[name]
    random = np.random.default_rng(0)
    nodes, constants, value = [], [], "x"
    for index, (columns, out) in enumerate(itertools.pairwise(widths)):
        layer = f"layer{index}"
        weights = (random.standard_normal((columns, out)) * math.sqrt(2 / columns)).astype(np.float16)
        bias = (random.standard_normal(out) * 0.1).astype(np.float16)
        constants += [numpy_helper.from_array(weights, f"{layer}.w"), numpy_helper.from_array(bias, f"{layer}.b")]
        nodes += [
            helper.make_node("MatMul", [value, f"{layer}.w"], [f"{layer}.p"], name=layer),
            helper.make_node("Add", [f"{layer}.p", f"{layer}.b"], [f"{layer}.s"], name=f"{layer}.add"),
            helper.make_node("Relu", [f"{layer}.s"], [f"{layer}.y"], name=f"{layer}.relu"),
        ]
        value = f"{layer}.y"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["N", rows, widths[0]])
    y = helper.make_tensor_value_info(value, TensorProto.FLOAT16, ["N", rows, widths[-1]])
    graph = helper.make_graph(nodes, name, [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

"""`verify --widen`: the fewest layers to keep in fp32, found without an engine; a plan with them passes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from planned_engine import PlannedModel
from widened_net import Net

from bolt_build.build.planning.engine_from_model import parse, plan_parsed
from bolt_build.digest import encode
from bolt_build.errors import BoltError
from bolt_build.planner.plan_engine import PlannedEngine
from bolt_build.report.widening import render
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named
from bolt_build.verify import Tolerances, VerifyReport
from bolt_build.verify.engine import verify_model
from bolt_build.verify.reference import Reference
from bolt_build.workflows.built import BuiltEngine
from bolt_build.workflows.widening import Widening, widen

TIGHT = '"f[c]": {tolerance: 2.5e-3}'
BEYOND = 3e5
"""What makes results of a layer exceed fp16."""


def chain_of(folder: Path, gains: dict[str, float]) -> None:
    net, x = Net(), "image"
    for name, gain in gains.items():
        x = net.conv(name, x, gain)
    net.saved(folder, x)


def recipe_in(folder: Path, target: str, precision: str, more: str = "") -> Recipe:
    text = f"bolt: 1\nmodel: {{onnx: net.onnx, batch: 2}}\ntargets: {{{target}: {{precision: {precision}}}}}\n{more}"
    (folder / "net.yaml").write_text(text)
    return load_recipe(folder / "net.yaml")


def planned(recipe: Recipe) -> PlannedEngine:
    assert recipe.model.onnx is not None
    spec = recipe.targets[0]
    return plan_parsed(parse(Path(recipe.model.onnx)), recipe, spec, target_named(spec.name))


def verified(recipe: Recipe) -> VerifyReport:
    """What verification says of the plan, computed by NumPy in the types that it stores."""
    assert recipe.model.onnx is not None
    engine = planned(recipe)
    reference, tolerances = Reference(Path(recipe.model.onnx), ()), Tolerances(recipe.verify.tolerance)
    with np.errstate(all="ignore"):
        return verify_model(PlannedModel(engine), reference, engine.plan, recipe.verify, tolerances)


def widened(recipe: Recipe, report: VerifyReport | None = None) -> Widening:
    assert recipe.model.onnx is not None
    folder, model = Path(recipe.path).parent, Path(recipe.model.onnx)
    (folder / "engine.json").write_text(json.dumps(encode(planned(recipe).plan)))
    directory = SimpleNamespace(engine=folder / "engine.json")
    engine = SimpleNamespace(target=recipe.targets[0].name, model=model, directory=directory)
    return widen(recipe, cast("BuiltEngine", engine), report, lambda text: None)


def patched(recipe: Recipe, patch: str) -> Recipe:
    """The recipe with a unified diff of one hunk applied."""
    path = Path(recipe.path)
    head, *lines = patch.splitlines(keepends=True)[2:]
    first, count = map(int, head.split()[1].removeprefix("-").split(","))
    before = path.read_text().splitlines(keepends=True)
    at = first - 1
    assert before[at : at + count] == [line[1:] for line in lines if line[0] in " -"]
    before[at : at + count] = [line[1:] for line in lines if line[0] in " +"]
    path.write_text("".join(before))
    return load_recipe(path)


def test_what_exceeds_fp16_and_who_reads_it_is_kept_wide(tmp_path: Path) -> None:
    chain_of(tmp_path, {"a": 1.0, "b": BEYOND, "c": 1 / BEYOND, "d": 1.0})
    recipe = recipe_in(tmp_path, "h200", "fp16")
    assert not verified(recipe).ok
    found = widened(recipe)
    assert (found.keys, found.left, found.proposal.passes) == (("b", "c"), (), True)
    text = render(found)
    assert text.startswith("h200, batch 2: 2 of 5 layers in fp16 are to be kept in fp32\n  b/relu  numbers up to ")
    assert text.split("\n")[1].endswith(", f16 ends at 65504")
    assert text.endswith(
        ' targets: {h200: {precision: fp16}}\n+layers:\n+  "b": {precision: fp32}\n+  "c": {precision: fp32}\n'
    )
    assert verified(patched(recipe, found.patch)).ok


def test_of_two_products_in_one_kernel_the_one_that_has_to_be_is_wide(tmp_path: Path) -> None:
    net = Net()
    x = net.conv("a", "image")
    for name, gain in (("b", 1.0), ("c", BEYOND), ("d", 1 / BEYOND)):
        x = net.conv(name, x, gain, size=1)
    net.saved(tmp_path, x)
    recipe = recipe_in(tmp_path, "h200", "fp16", "policy: {fusion: {persistent: always}}\n")
    chains = [step.covers for step in planned(recipe).plan.plans[0].steps if len(step.problem.op.sequence) > 1]
    assert any({"b", "c"} <= set(names) or {"c", "d"} <= set(names) for names in chains)
    found = widened(recipe)
    assert "b" not in found.keys
    assert found.left == ()
    assert verified(patched(recipe, found.patch)).ok


def test_numbers_that_bf16_holds_need_no_layer_wide(tmp_path: Path) -> None:
    chain_of(tmp_path, {"a": 1.0, "b": BEYOND, "c": 1 / BEYOND, "d": 1.0})
    recipe = recipe_in(tmp_path, "h200", "bf16")
    assert verified(recipe).ok
    found = widened(recipe)
    assert (found.keys, found.patch, found.cost) == ((), "", None)
    assert render(found).startswith("h200, batch 2: no layer is to be widened: by rounding alone outputs use ")


@pytest.mark.parametrize(
    ("more", "after"),
    [
        (
            "layers:\n    d: {persistent: never}  # its own\n# behind\n",
            "layers:\n    d: {persistent: never}  # its own\n",
        ),
        ("layers: {d: {persistent: never}}\n", "layers: {d: {persistent: never}, "),
    ],
    ids=["below", "beside"],
)
def test_tolerances_of_the_recipe_are_kept_with_the_layers_that_it_has(tmp_path: Path, more: str, after: str) -> None:
    chain_of(tmp_path, {"a": 1.0, "d": 1.0})
    recipe = recipe_in(tmp_path, "a100", "bf16", f"verify: {{tolerance: 4e-3}}\n{more}")
    report = verified(recipe)
    assert not report.ok
    departed = {layer.name for layer in report.batches[0].layers if not layer.ok}
    found = widened(recipe, report)
    assert departed <= {each.layer.name for each in found.proposal.wide}
    assert found.cost is not None
    assert found.cost.weights[1] > found.cost.weights[0]
    changed = patched(recipe, found.patch)
    assert after in (tmp_path / "net.yaml").read_text()
    assert [each.match for each in changed.layers] == ["d", *found.keys]
    assert "[d]" in found.keys  # 'd' has a key of its own already
    assert verified(changed).ok


def test_a_layer_less_is_not_enough(tmp_path: Path) -> None:
    chain_of(tmp_path, dict.fromkeys("abcd", 1.0))
    recipe = recipe_in(tmp_path, "h200", "bf16", f"layers: {{{TIGHT}}}\n")
    found = widened(recipe)
    assert found.proposal.passes
    assert found.proposal.before > 1.0
    for without in (each.layer.names[0] for each in found.proposal.wide):
        wide = [f'"{key}": {{precision: fp32}}' for key in found.keys if key != without]
        fewer = recipe_in(tmp_path, "h200", "bf16", f"layers: {{{', '.join([*wide, TIGHT])}}}\n")
        assert widened(fewer).proposal.before > 1.0


def test_a_model_that_is_itself_in_fp16_is_not_rounded(tmp_path: Path) -> None:
    chain_of(tmp_path, {"a": 1.0})
    model = onnx.load(tmp_path / "net.onnx")
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.elem_type = TensorProto.FLOAT16
    for constant in model.graph.initializer:
        constant.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(constant).astype(np.float16), constant.name))
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(BoltError) as caught:
        widened(recipe_in(tmp_path, "h200", "fp16"))
    (found,) = caught.value.diagnostics
    assert (found.code, found.hint) == ("not-rounded", "export it in fp32")
    assert found.message == "the model itself is in fp16, so that its own roundings cannot be told from an engine's"

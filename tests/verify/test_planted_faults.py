"""Faults that kernels and planners make, in every layer of a small model of each kind: all are found that change a
layer by more than rounding does. `benchmarks/correctness/planted_faults.py` does so for ResNet-50."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
from fault_models import MODELS, long_attention
from fault_table import Engine, outcomes, planned_engine, right_layers, whole_verifications
from planted import FAULTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


def engine_of(model: str, target: str, precision: str, folder: Path) -> Engine:
    path = folder / f"{model}.onnx"
    if not path.exists():
        onnx.save(MODELS[model](), path)
    return planned_engine(path, target, precision)


@pytest.mark.parametrize("model", MODELS)
def test_in_fp32_every_fault_of_every_layer_is_found(model: str, folder: Path) -> None:
    engine = engine_of(model, "host", "fp32", folder)
    assert [layer.name for layer in right_layers(engine) if not layer.ok or layer.blind] == []
    found = list(outcomes(engine))
    assert [(o.layer, o.fault) for o in found if not o.found] == []
    assert len({o.layer for o in found}) == len(right_layers(engine))


def test_every_kind_of_fault_is_planted_somewhere(folder: Path) -> None:
    planted = {o.fault for model in MODELS for o in outcomes(engine_of(model, "host", "fp32", folder))}
    assert planted == set(FAULTS)


@pytest.mark.parametrize(("target", "precision"), [("h200", "fp16"), ("host", "bf16")])
@pytest.mark.parametrize("model", ["depthwise", "attention"])
def test_in_half_precision_what_is_not_found_is_no_more_than_rounding(
    model: str, target: str, precision: str, folder: Path
) -> None:
    engine = engine_of(model, target, precision, folder)
    assert [layer.name for layer in right_layers(engine) if not layer.ok or layer.blind] == []
    found = list(outcomes(engine))
    assert {o.why for o in found} <= {"", "within rounding", "changes nothing"}
    structural = {
        "bias dropped", "tap shifted", "channels swapped", "activation missing", "wrong axis", "scale missing",
        "key missed", "heads mixed",
    }  # fmt: skip
    assert Counter(o.fault for o in found if o.fault in structural and not o.found) == {}
    assert [o.layer for o in found if o.fault == "shares in half" and o.found] == []
    for outcome in found:
        assert outcome.rounding < 0.1, f"{outcome.layer} could hardly be judged"


def test_means_over_many_rows_do_not_level_out_what_weights_lose(folder: Path) -> None:
    """The three projections are one product of which the model has no tensor, so attention is judged from its input."""
    path = folder / "long.onnx"
    onnx.save(long_attention(), path)
    engine = planned_engine(path, "h200", "fp16")
    assert [(layer.name, layer.ok, layer.blind) for layer in right_layers(engine)][-1] == ("mix", True, False)


def test_a_whole_engine_with_a_fault_departs_in_its_layer_alone(folder: Path) -> None:
    """All that lies behind the layer is computed from the fault."""
    engine = engine_of("depthwise", "host", "fp32", folder)
    assert all(whole_verifications(engine, list(outcomes(engine))))

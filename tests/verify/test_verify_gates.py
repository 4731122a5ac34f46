"""Drawn networks of gated blocks: an engine in half precision is right in every layer, whatever their magnitudes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_gates import GatedNet
from fault_table import planned_engine
from planned_engine import PlannedContext

from bolt_build.verify.layers import compare_layers

FEW, MANY = (7, 8), range(70)
"""Both of the few have weights below the normal numbers."""
LARGEST = 3e4
"""Beyond it half precision ends: such a network is not asked about."""
TARGETS = ("h200", "a100", "t4")


def departing(seed: int, folder: Path) -> list[str]:
    """What verification says of layers that NumPy computes as the plan has them."""
    net = GatedNet(seed)
    path = net.saved(folder / f"net{seed}.onnx")
    engine = planned_engine(path, TARGETS[seed % len(TARGETS)], "fp16", net.shapes["x"][0])
    with np.errstate(all="ignore"):
        most = max(float(np.abs(done.result.astype(np.float32)).max(initial=0.0)) for done in engine.steps)
    if not most < LARGEST:
        return []
    context = PlannedContext(engine.plan, engine.planned.constants)
    found = compare_layers(context, engine.reference, engine.plan, engine.inputs).layers
    return [f"network {seed}: '{layer.tensor}' in '{layer.name}': {layer}" for layer in found if not layer.ok]


def test_layers_of_gated_networks_do_not_depart(tmp_path: Path) -> None:
    assert [each for seed in FEW for each in departing(seed, tmp_path)] == []


@pytest.mark.large
def test_layers_of_many_gated_networks_do_not_depart(tmp_path: Path) -> None:
    assert [each for seed in MANY for each in departing(seed, tmp_path)] == []

"""Engines of blocks that are gated by the mean of what they leave agree with onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from gate_models import gated_blocks
from gpu_commands import bolt, target_here
from recipe_projects import Project
from soon_compiled import emitted_soon_compiled

RECIPE = """\
bolt: 1
name: gates
model: {{onnx: gates.onnx, batch: 2}}
targets: {{{target}: {{precision: {precision}}}}}
verify: {{samples: 1}}
"""


def write(folder: Path, target: str, precision: str) -> None:
    onnx.save(gated_blocks(), str(folder / "gates.onnx"))
    (folder / "gates.yaml").write_text(RECIPE.format(target=target, precision=precision))


@pytest.mark.large
def test_on_the_host(tmp_path: Path, cache_home: Path) -> None:
    """The squeezed block's mean is taken in front of its convolution; ECA's, which would read more weights, is not."""
    write(tmp_path, "host", "fp32")
    project = Project(tmp_path, cache_home)
    with emitted_soon_compiled():
        said = project.bolt("build", "gates.yaml", "--format", "json")
    assert json.loads(said.splitlines()[-1])["targets"][0]["verified"] is True
    planned = project.bolt("plan", "gates.yaml")
    assert "early-means: s.mean: taken (of what 's.wide' reads, whose weights are part of those of 's.few')" in planned
    reason = "a product of single pixels would read 1019 weights more, for a result of 10368 elements"
    assert f"early-means: e.mean: declined ({reason})" in planned


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_on_the_gpu(tmp_path: Path, precision: str) -> None:
    write(tmp_path, target_here(), precision)
    assert bolt(tmp_path, "build", "gates.yaml")["targets"][0]["verified"] is True

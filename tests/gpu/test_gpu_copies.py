"""An engine that copies nothing inside agrees with onnxruntime on a GPU: parts stored between each other, channels
padded by their producer, an image read by its classifier as it lies."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from copies_models import branches
from gpu_commands import bolt, target_here

pytestmark = pytest.mark.gpu

RECIPE = """\
bolt: 1
name: branches
model: {{onnx: branches.onnx, batch: [1, 16]}}
targets: {{{target}: {{precision: fp16}}}}
"""


def test_branches_meet_where_they_are_written(tmp_path: Path) -> None:
    onnx.save(branches(), str(tmp_path / "branches.onnx"))
    (tmp_path / "branches.yaml").write_text(RECIPE.format(target=target_here()))
    built = bolt(tmp_path, "build", "branches.yaml")
    assert built["targets"][0]["verified"] is True

"""No step of small networks of many kinds is predicted to stay under 5% of its bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest


def planned(tmp_path: Path, name: str, target: str, batch: int) -> Any:
    from benchmarks.planning import cliff_models, cliffs

    model = tmp_path / f"{name}.onnx"
    onnx.save(cliff_models.MODELS[name](), model)
    return cliffs.plan(model, target, batch, tmp_path)


@pytest.mark.parametrize(
    ("name", "target", "batch"),
    [
        ("audio", "h200", 32), ("edsr", "h200", 32), ("fcn", "h200", 32), ("r3d", "h200", 128),
        ("shufflenet_v2", "h200", 32), ("two_towers", "h200", 32), ("large_kernels", "t4", 32),
        *(
            pytest.param(*each, marks=pytest.mark.large)
            for each in (
                ("dcgan", "h200", 32), ("unet", "h200", 32), ("x3d", "h200", 32), ("shufflenet_v2", "a100", 32),
                ("unet3d", "t4", 1), ("generator", "h200", 32), ("ghostnet", "h200", 32), ("unet3d", "h200", 32),
                ("large_kernels", "h200", 32), ("separable_audio", "h200", 32), ("shufflenet_v1", "h200", 32),
                ("r2plus1d", "a100", 32),
            )
        ),
    ],
)  # fmt: skip
def test_no_step_is_a_cliff(tmp_path: Path, name: str, target: str, batch: int) -> None:
    assert planned(tmp_path, name, target, batch).cliffs == ()


def test_a_cliff_is_named_with_its_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no pass brings a volume to tensor cores a plain loop computes it."""
    from bolt_build.planner import pipeline
    from bolt_build.planner.passes.images.volumes import FLATTEN_VOLUMES

    left = tuple(each for each in pipeline.PIPELINE if each is not FLATTEN_VOLUMES)
    monkeypatch.setattr(pipeline, "PIPELINE", left)
    found = planned(tmp_path, "unet3d", "h200", 1).cliffs
    assert "portable algorithm=direct" in {cliff.kernel for cliff in found}
    assert "conv f16[1,1,32,64,64],f16[16,1,3,3,3] -> f16[1,16,32,64,64]" in {cliff.what for cliff in found}

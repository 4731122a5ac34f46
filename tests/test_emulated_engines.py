"""An engine that bolt-build built for the H200, with products in one kernel wherever one can compute them, agrees with
onnxruntime on the emulated GPU, layer by layer."""

from __future__ import annotations

import json
from pathlib import Path

import emulated_toolkit
import pytest
from test_chain_engines import fused, write
from test_gpu_tune import bolt

from bolt_build.toolchain import probe


def test_chains_in_one_kernel_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if probe(("nvcc", "cutlass")).diagnostics():
        pytest.skip("needs nvcc and CUTLASS")
    for name, value in emulated_toolkit.environment().items():
        monkeypatch.setenv(name, value)
    recipe = write(tmp_path, 0, "always", "h200", "fp16")
    assert fused(recipe) >= 2
    assert bolt(tmp_path, "build", recipe.name)["targets"][0]["verified"] is True
    report = json.loads((tmp_path / "generated" / "always" / "h200" / "verify.json").read_text(encoding="utf-8"))
    assert report["problems"] == []

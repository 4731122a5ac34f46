"""An engine in bf16 on a GPU, some of its layers kept in fp32: every layer agrees with onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_commands import bolt, target_here
from widened_net import Net

from bolt_build.targets import target_named

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kept", ["", "layers: {b: {precision: fp32}, fc: {precision: fp32}}\n"], ids=["all", "some"])
def test_an_engine_in_bf16(tmp_path: Path, kept: str) -> None:
    target = target_here()
    if "bf16" not in target_named(target).precisions:
        pytest.skip(f"{target} has no bf16")
    net, x = Net(), "image"
    for name in "abc":
        x = net.conv(name, x)
    net.saved(tmp_path, x)
    text = f"bolt: 1\nmodel: {{onnx: net.onnx, batch: [1, 5]}}\ntargets: {{{target}: {{precision: bf16}}}}\n{kept}"
    (tmp_path / "net.yaml").write_text(text)
    (found,) = bolt(tmp_path, "build", "net.yaml")["targets"]
    assert found["verified"] is True
    report = json.loads((tmp_path / "generated" / "net" / target / "verify.json").read_text(encoding="utf-8"))
    wide = {layer["name"] for batch in report["batches"] for layer in batch["layers"] if layer["precision"] == "f32"}
    assert ("b/relu" in wide) is bool(kept)

"""An Einsum with a constant that half precision stores: the reference has it as the model does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alarm_networks import Net

from bolt_build.dtypes import DType
from bolt_build.verify.judgement import judge
from bolt_build.verify.reference import Reference
from bolt_build.verify.taps import Source, Tap

HALF, FP32 = DType.F16, DType.F32
EQUATIONS = (
    ("bhwc,hkc->bhwk", (2, 6, 6, 32), (6, 6, 32)),  # relative positions of rows, as Segment Anything writes them
    ("...c,...kc->...k", (2, 6, 32), (2, 6, 5, 32)),
    ("ijc,cij", (4, 5, 32), (32, 4, 5)),
)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize(("equation", "x", "table"), EQUATIONS)
def test_what_its_constant_loses_is_counted(
    equation: str, x: tuple[int, ...], table: tuple[int, ...], wrong: bool, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    held = random.standard_normal(x).astype(np.float16).astype(np.float32)
    constant = random.standard_normal(table).astype(np.float32)
    if constant.shape[-1] == 32:  # nearly opposite halves: the sum is far smaller than what it adds
        held[..., 16:] = -held[..., :16]
        constant[..., 16:] = constant[..., :16] * 1.01
    rounded = constant.astype(np.float16).astype(np.float64)
    if wrong:
        rounded[..., 0] = 0.0
    made = np.asarray(np.einsum(equation, held.astype(np.float64), rounded)).astype(np.float16).astype(np.float32)
    net = Net(list(x))
    node = net.node("Einsum", "y", "x", net.constant("table", constant), equation=equation)
    path = net.saved(tmp_path / "net.onnx", node, list(made.shape))
    tap = Tap(0, "y", ("y",), "y", "y", "kernel", made.shape, (Source("x", "x", HALF),), HALF, HALF, 1, 1, HALF, False)
    (expected,) = Reference(path, ()).expected([tap], {"x": held}, {})
    found = judge(made, expected.tensor, expected.variance, HALF, expected.relative)
    assert (found.used > 1) is wrong

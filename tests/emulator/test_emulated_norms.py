"""An engine whose product and normalisation are one kernel, of blocks that exchange statistics through memory: on the
emulated GPU, in contexts that run at the same time."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import emulated
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from gpu_commands import bolt

from bolt_build import emulator
from bolt_build.graph.ir import Array
from bolt_build.runtime.loader import Context, Engine
from bolt_build.toolchain import probe

pytestmark = pytest.mark.large

ROWS, DEPTH, COLUMNS = 1500, 64, 640
"""So many that one kernel is predicted to be faster than two."""
RECIPE = """\
bolt: 1
model: {onnx: norms.onnx, batch: 2}
targets: {h200: {precision: fp16}}
verify: {samples: 1}
"""


def written(folder: Path) -> Path:
    """A product, a residual and the normalisation of the sum."""
    random = np.random.default_rng(3)
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        norms (float16[N,{ROWS},{DEPTH}] x, float16[N,{ROWS},{COLUMNS}] r) => (float16[N,{ROWS},{COLUMNS}] y) {{
          p = MatMul(x, w)
          q = Add(p, r)
          y = LayerNormalization <axis = -1> (q, s, t)
        }}""")
    for name, shape, scale in (("w", (DEPTH, COLUMNS), DEPTH**-0.5), ("s", (COLUMNS,), 1.0), ("t", (COLUMNS,), 1.0)):
        values = (random.standard_normal(shape) * scale).astype(np.float16)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, str(folder / "norms.onnx"))
    (folder / "norms.yaml").write_text(RECIPE)
    return folder / "norms.yaml"


def test_contexts_that_run_at_the_same_time_count_by_themselves(tmp_path: Path, cache_home: Path) -> None:
    if probe(("nvcc", "cutlass")).diagnostics():
        pytest.skip("needs nvcc and CUTLASS")
    recipe = written(tmp_path)
    ctypes.CDLL(str(emulator.library(emulated.FOLDER)), ctypes.RTLD_GLOBAL)
    (target,) = bolt(tmp_path, "emulate", recipe.name, cache=emulated.cache_with_runtime(cache_home))["targets"]
    assert target["verified"]
    folder = Path(target["directory"])
    text = (folder / "src" / "plan_b2.cu").read_text()
    assert (text.count("::WarpgroupMemoryNorm<"), text.count("bool counts() const override { return true; }")) == (1, 1)
    whole = onnxruntime.InferenceSession(str(tmp_path / "norms.onnx"), providers=["CPUExecutionProvider"])

    def runs(context: Context, seed: int) -> list[tuple[Array, Array]]:
        random = np.random.default_rng(seed)
        pairs = []
        for _ in range(2):
            given = {
                "x": random.standard_normal((2, ROWS, DEPTH)).astype(np.float16),
                "r": random.standard_normal((2, ROWS, COLUMNS)).astype(np.float16),
            }
            pairs.append((context.run(given)["y"], whole.run(None, given)[0]))
        return pairs

    (library,), (weights,) = folder.glob("lib*.so"), folder.glob("*.weights")
    with ExitStack() as stack:
        model = stack.enter_context(stack.enter_context(Engine(library)).create(weights))
        contexts = [stack.enter_context(model.context(2)) for _ in range(2)]
        pool = stack.enter_context(ThreadPoolExecutor(2))
        pairs = [pair for found in pool.map(runs, contexts, (1, 2)) for pair in found]
    assert len(pairs) == 4
    assert all(np.abs(found.astype(np.float32) - wanted).max() < 3e-2 for found, wanted in pairs)

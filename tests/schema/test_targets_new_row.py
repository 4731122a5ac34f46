"""A GPU of a known architecture is one row of `targets.py`: added to a copy of the package, it is planned and emitted
for, and its facts stand nowhere else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bolt_build
from bolt_build.targets import CUDA

PACKAGE = Path(bolt_build.__file__).parent
LAST = "    # No kernel was measured on these two"
ROW = """\
    _cuda(
        "h20", "NVIDIA H20", _SM90, devices=("NVIDIA H20",),
        sms=78, l2_mib=60, memory_gib=96, bandwidth=4.0e12, fp16=148e12, fp32=44e12,
    ),
"""
PROGRAM = """\
from pathlib import Path
from bolt_build.build.planning.engine_from_model import parse, plan_parsed
from bolt_build.emit.engine import emit
from bolt_build.families import load
from bolt_build.schema.recipe import TargetSpec
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named
target = target_named("h20")
recipe = load_recipe(Path("net.yaml"))
plan = plan_parsed(parse(Path("net.onnx")), recipe, recipe.targets[0], target).plan
files = {file.path: file.text for file in emit(plan, target, load(target))}
print(plan.target, *sorted({step.candidate.family for step in plan.plans[0].steps}), *sorted(files))
print('"sm_90"' in files["engine.cpp"])
"""


def test_a_row_more_plans_and_emits_an_engine(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "bolt_build", ignore=shutil.ignore_patterns("__pycache__"))
    rows = tmp_path / "bolt_build/targets.py"
    text = rows.read_text("utf-8")
    assert text.count(LAST) == 1
    rows.write_text(text.replace(LAST, ROW + LAST), "utf-8")
    write_model(tmp_path / "net.onnx")
    (tmp_path / "net.yaml").write_text(
        "bolt: 1\nname: net\nmodel: {onnx: net.onnx}\ntargets:\n  h20: {precision: fp16}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )  # fmt: skip
    assert done.stderr == ""
    planned, arch = done.stdout.splitlines()
    assert planned.startswith("h20 cutlass portable engine.cpp exports.map ")
    assert arch == "True"


def write_model(path: Path) -> None:
    """A product of [512, 512] by [512, 512]."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((512, 512), np.float32), "w")
    shape = [512, 512]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")], "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], [weights],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@pytest.mark.parametrize("row", [row for row in CUDA if row.gpu is not None and row.gpu.warpgroup_mma])
def test_the_headers_of_warpgroup_kernels_know_its_shared_memory(row: object) -> None:
    """The one fact of a row that C++ says again: kernels for sm_90a count stages with it at compile time."""
    text = (PACKAGE / "families/cutlass/include/bolt_cutlass/shared_memory.h").read_text()
    found = re.findall(r"shared_bytes = (\d+) \* (\d+);", text)
    assert [int(a) * int(b) for a, b in found] == [row.gpu.shared_memory]  # type: ignore[attr-defined]


def test_nothing_else_states_what_a_row_does() -> None:
    """Peak rates, and bytes of shared memory as KiB, of any row, in Python or in what is compiled for engines."""
    said = re.compile(r"\b(?:989|227 ?\* ?1024|227 ?<< ?10|2250e12|99 ?\* ?1024|163 ?\* ?1024)")
    files = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".h", ".cpp", ".cu", ".cuh")]
    places = {str(path.relative_to(PACKAGE)) for path in files if said.search(path.read_text("utf-8"))}
    # The emulator is a GPU, with what one has.
    assert places == {
        "targets.py", "families/cutlass/include/bolt_cutlass/shared_memory.h", "emulator/src/launch_limits.h",
    }  # fmt: skip

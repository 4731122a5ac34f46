"""What verification is for: engines that are really built, but wrong, and the layer that is named for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from engine_builds import Built, build_engine, edited
from nets import pooling_net, residual_net

from bolt_build.build.planning import engine_from_model as engine_planning
from bolt_build.digest import decode
from bolt_build.errors import ExitCode
from bolt_build.families.onednn.family import OneDnn
from bolt_build.families.portable.family import Portable
from bolt_build.planner.engine_plan import EnginePlan, StepTensor
from bolt_build.planner.plan_engine import PlannedEngine
from bolt_build.verify import VerifyReport

ROOT = Path(__file__).resolve().parents[2]


def assert_caught(built: Built, layer: str, *others: str) -> str:
    """The build ends with the code of a failed verification, every batch names `layer`, and `others` behind it alone.

    Returns the first sentence about it.
    """
    assert built.result.failed == ()
    assert built.result.exit_code is ExitCode.VERIFY_FAILED
    assert_named(built.report, layer, *others)
    return next(problem.message for problem in built.report.problems)


def assert_named(report: VerifyReport, layer: str, *others: str) -> None:
    assert not report.ok
    found = [batch.first_departure for batch in report.batches]
    assert [departed.name for departed in found if departed is not None] == [layer] * len(report.batches)
    messages = [problem.message for problem in report.problems if problem.code == "layer-departs"]
    assert len(messages) == len(report.batches)
    for batch, message in zip(report.batches, messages, strict=True):
        assert message.startswith(f"batch {batch.batch}: '{layer}' departs (step ")
        assert " what rounding does to its own inputs" in message
        _, _, named = message.partition("; so do ")
        assert named == ", ".join(f"'{other}'" for other in others)


@pytest.fixture(scope="module")
def nets() -> dict[str, onnx.ModelProto]:
    """Which pass unbroken: `right_engines` are of them."""
    return {"residual": residual_net(), "pooling": pooling_net()}


# -- broken kernels ----------------------------------------------------------------------------------------------


def one_element(folder: Path) -> Path:
    """oneDNN kernels of which those with twelve output channels make one element wrong by a fiftieth."""
    execution = '"oneDNN could not execute a kernel");'
    fault = " if (output_.get_dims()[1] == 12) static_cast<float*>(output)[5] += 0.02f;"
    return edited(OneDnn().include_dir.parent / "src", folder, ("primitive.cpp", execution, execution + fault))


def pooling_edge(folder: Path) -> Path:
    """oneDNN kernels whose average pooling counts the padding that it should not."""
    right, wrong = "dnnl::algorithm::pooling_avg_exclude_padding", "dnnl::algorithm::pooling_avg_include_padding"
    return edited(OneDnn().include_dir.parent / "src", folder, ("pool.cpp", right, wrong))


@pytest.mark.parametrize(
    ("fault", "unit", "layer"),
    [
        pytest.param(one_element, "primitive.cpp", "relu2", marks=pytest.mark.large),
        pytest.param(pooling_edge, "operators.cpp", "pool", marks=pytest.mark.large),
    ],
)
def test_a_broken_kernel_of_a_library(
    fault: Callable[[Path], Path], unit: str, layer: str, nets: dict[str, onnx.ModelProto], tmp_path: Path, cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The unit with the fault is compiled, the others are those of all engines."""
    folder = fault(tmp_path / "src")
    units = tuple(folder / path.name if path.name == unit else path for path in OneDnn().sources)
    assert units != OneDnn().sources
    monkeypatch.setattr(OneDnn, "sources", property(lambda self: units))
    built = build_engine(tmp_path / "p", "pooling", nets["pooling"], cache, batch=[1, 2])
    assert_caught(built, layer)


def test_a_broken_template(
    nets: dict[str, onnx.ModelProto], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A portable kernel that divides a sum by one more than it has elements."""
    right, wrong = "sum / static_cast<float>(count)", "sum / static_cast<float>(count + 1)"
    folder = edited(Portable().include_dir, tmp_path / "include", ("bolt_portable/reduce.h", right, wrong))
    monkeypatch.setattr(Portable, "include_dir", property(lambda self: folder))
    built = build_engine(tmp_path / "p", "pooling", nets["pooling"], cache, batch=[2])
    assert_caught(built, "mean")


# -- a wrong fold ------------------------------------------------------------------------------------------------

WRONG_FOLD = """\
from dataclasses import replace

from bolt_build.graph.ops.norms.normalization import BatchNorm
from bolt_build.planner.passes.base import Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor


def _run(graph):
    editor = GraphEditor(graph)
    for node in editor.nodes():
        if isinstance(node.op, BatchNorm) and node.name == "conv3/bn":
            editor.replace(node, replace(node, op=replace(node.op, epsilon=1e-3)))
    return PassResult(editor.finish(), ())


PASS = Pass("wrong-epsilon", _run, before="fold-batch-norm")
"""


def test_a_wrong_fold(nets: dict[str, onnx.ModelProto], tmp_path: Path, cache: Path) -> None:
    """A pass of another package, found by its entry point, lets one BatchNorm be folded with another epsilon.

    Without that package the next build plans anew, which writes other weights, compiles nothing and passes.
    """
    package = tmp_path / "site"
    about = package / "wrong_fold-1.0.dist-info"
    about.mkdir(parents=True)
    (package / "wrong_fold.py").write_text(WRONG_FOLD)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-fold\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[bolt_build.passes]\nwrong-epsilon = wrong_fold:PASS\n")
    onnx.save(nets["residual"], str(tmp_path / "net.onnx"))
    (tmp_path / "net.yaml").write_text(
        "bolt: 1\nmodel: {onnx: net.onnx, batch: [1, 2]}\ntargets: {host: {precision: fp32}}\nverify: {samples: 1}\n"
    )
    done = bolt_build(tmp_path, cache, f"{package}:{ROOT}")
    assert done.returncode == ExitCode.VERIFY_FAILED, done.stdout + done.stderr
    found = json.loads((tmp_path / "generated" / "net" / "host" / "verify.json").read_text())
    assert_named(decode(VerifyReport, found), "c")
    assert "net for host in fp32 DEPARTS FROM onnxruntime" in done.stderr
    assert "error[layer-departs]: batch 1: 'c' departs (step " in done.stderr
    weights = tmp_path / "generated" / "net" / "host" / "net.weights"
    wrong = weights.read_bytes()
    without = bolt_build(tmp_path, cache, str(ROOT))
    assert without.returncode == 0, without.stdout + without.stderr
    assert weights.read_bytes() != wrong
    assert "compile" not in without.stdout


def bolt_build(folder: Path, cache: Path, path: str) -> subprocess.CompletedProcess[str]:
    """The recipe net.yaml in `folder` built by the command line, with packages found along `path` too."""
    return subprocess.run(
        [sys.executable, "-m", "bolt_build", "net.yaml", "--cache", cache], cwd=folder, capture_output=True, text=True,
        check=False, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip


# -- a swapped residual ------------------------------------------------------------------------------------------


def with_residuals_swapped(plan: EnginePlan) -> EnginePlan:
    """The plan in which the step that joins "a" reads "b" from memory instead, and the other way round."""
    batches = []
    for batch in plan.plans:
        places = {t.value: t.location for step in batch.steps for t in step.outputs if t.value in ("a", "b")}
        other = {"a": places["b"], "b": places["a"]}
        assert places["a"] != places["b"]

        def swapped(tensor: StepTensor, other: dict[str, object] = other) -> StepTensor:
            return replace(tensor, location=other[tensor.value]) if tensor.value in other else tensor

        steps = tuple(
            replace(step, inputs=(step.inputs[0], *map(swapped, step.inputs[1:]))) if step.name in ("c", "d") else step
            for step in batch.steps
        )
        batches.append(replace(batch, steps=steps))
    return replace(plan, plans=tuple(batches))


@pytest.mark.large
def test_a_swapped_residual(
    nets: dict[str, onnx.ModelProto], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_rightly = engine_planning.plan_parsed

    def plan_wrongly(*question: object) -> PlannedEngine:
        planned = plan_rightly(*question)  # type: ignore[arg-type]
        return replace(planned, plan=with_residuals_swapped(planned.plan))

    monkeypatch.setattr(engine_planning, "plan_parsed", plan_wrongly)
    built = build_engine(tmp_path / "p", "residual", nets["residual"], cache, batch=[2])
    assert_caught(built, "c", "d")  # both joins read what is not theirs

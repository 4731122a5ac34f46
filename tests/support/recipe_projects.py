"""A stranger's directory with a small convolutional model, in which bolt-build runs by the command line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bolt_build.build.builder import BuildOptions, build
from bolt_build.cli.main import main
from bolt_build.cli.recipe_file import checked_recipe
from bolt_build.errors import ExitCode
from bolt_build.report.progress import QuietProgress

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """\
bolt: 1
name: tiny
model: {onnx: tiny.onnx, batch: [1, 3]}
targets: {host: {precision: fp32}}
policy: {fusion: {epilogue: true}}
verify: {samples: 2}
"""
PATIENCE_SECONDS = 300


def write_model(path: Path, seed: int = 0) -> None:
    """Two convolutions with a residual, pooled and classified; its outputs depend on its input."""
    random = np.random.RandomState(seed)

    def constant(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array((random.randn(*shape) * 0.3).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["sum"], name="add"),
        helper.make_node("Relu", ["sum"], ["r2"], name="relu2"),
        helper.make_node("Flatten", ["r2"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["y"], name="fc", transB=1),
    ]
    constants = [
        constant("w1", 8, 3, 3, 3), constant("b1", 8), constant("w2", 8, 8, 3, 3), constant("w3", 5, 288),
        constant("b3", 5),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 6, 6])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@dataclass(frozen=True)
class Project:
    """A stranger's directory with a recipe and a model; bolt-build runs in it."""

    path: Path
    cache: Path

    @property
    def host(self) -> Path:
        return self.path / "generated" / "tiny" / "host"

    def command(self, *words: str) -> list[str]:
        run = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from bolt_build.cli.main import main; sys.exit(main())"
        return [sys.executable, "-c", run, *words]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"XDG_CACHE_HOME": str(self.cache)}

    def bolt(self, *words: str, code: int = 0) -> str:
        """What bolt-build prints, on either stream. Fails where it ends with another exit code.

        It runs here: a process of its own would import everything once more (`command` is for those that need one).
        """
        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch, contextlib.chdir(self.path),
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        ):  # fmt: skip
            patch.setenv("XDG_CACHE_HOME", str(self.cache))
            try:
                found = main(words)
            except SystemExit as left:  # words that argparse does not take
                found = left.code
        assert found == code, out.getvalue() + err.getvalue()
        assert "Traceback" not in err.getvalue()
        return out.getvalue() + err.getvalue()

    def build(self, *words: str) -> list[str]:
        """Build; labels of the tasks that ran or were fetched."""
        lines = [json.loads(line) for line in self.bolt("tiny.yaml", "--format", "json", *words).splitlines()]
        assert lines[-1]["exit_code"] == 0
        return sorted(line["label"] for line in lines if line["event"] == "task" and line["kind"] == "finished")

    def build_here(self) -> None:
        """The same build without a process of its own, which would import everything once more."""
        options = BuildOptions(self.path / "generated", self.cache / "bolt-build")
        assert build(checked_recipe(self.path / "tiny.yaml"), options, QuietProgress()).exit_code is ExitCode.OK

    def dry_run(self) -> list[str]:
        data = json.loads(self.bolt("tiny.yaml", "--dry-run", "--format", "json").splitlines()[-1])
        return sorted(task["label"] for task in data["tasks"])

    def recipe(self, *changes: tuple[str, str]) -> None:
        """Write the recipe with some of its text replaced."""
        text = RECIPE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.path / "tiny.yaml").write_text(text)


def new_project(path: Path, cache: Path) -> Project:
    path.mkdir(parents=True)
    project = Project(path, cache)
    project.recipe()
    write_model(path / "tiny.onnx")
    return project

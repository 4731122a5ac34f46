"""What people get for what cannot be built or run: the exit code, the whole text, and nothing left half-written."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from engine_builds import Built
from graph_models import model, node, ones, tensor

from bolt_build.cli.main import main
from bolt_build.runtime.loader import Engine, EngineError

MODEL = "model: {onnx: net.onnx, batch: 1}\n"
TARGETS = "targets: {host: {precision: fp32}}\n"
RECIPE = "bolt: 1\n" + MODEL + TARGETS
NAMED = "  2 | " + MODEL + "    |               ^^^^^^^^"
"""The line of the recipe that names the model."""


def conv_model() -> onnx.ModelProto:
    return model([node("Conv", "x w", "y", "conv")], [tensor("x", ["N", 3, 8, 8])], constants={"w": ones(2, 3, 3, 3)})


def unsupported_model() -> onnx.ModelProto:
    nodes = [
        node("Conv", "x w", "a", "conv"),
        node("ImageDecoder", "a", "b", "decode"),
        node("NonMaxSuppression", "b g", "c", "sample"),
        node("ImageDecoder", "c", "d", "again"),
        node("Relu", "d", "y", "relu"),
    ]
    constants = {"w": ones(2, 3, 3, 3), "g": ones(1, 4, 4, 2)}
    return model(nodes, [tensor("x", ["N", 3, 8, 8])], constants=constants)


def unfitting_model() -> onnx.ModelProto:
    """Two branches with a mistake each; the node that joins them has none of its own."""
    nodes = [
        node("Conv", "x w", "a", "conv"),
        node("Add", "x c", "b", "shift"),
        node("Add", "a b", "y", "join"),
    ]
    return model(nodes, [tensor("x", ["N", 3, 8, 8])], constants={"w": ones(2, 4, 3, 3), "c": ones(5)})


def open_model() -> onnx.ModelProto:
    return model([node("Relu", "x", "y", "relu")], [tensor("x", ["N", 3, "rows", "columns"])])


CONV = conv_model().SerializeToString()


@dataclass(frozen=True)
class Wrong:
    """A recipe `net.yaml` with `net.onnx` beside it (None: there is none), and what is said; HERE is the folder."""

    recipe: str
    model: bytes | None
    said: str
    code: int = 3


WRONG = {
    "unknown key": Wrong(
        RECIPE + "polcy: {}\n", CONV,
        """\
net.yaml:4:1: error[unknown-key]: 'polcy' is not a key of a recipe
  4 | polcy: {}
    | ^^^^^ did you mean 'policy'?
""",
    ),
    "wrong type": Wrong(
        RECIPE + "verify: {samples: many}\n", CONV,
        """\
net.yaml:4:19: error[wrong-type]: 'verify.samples' must be an integer, found the string 'many'
  4 | verify: {samples: many}
    |                   ^^^^
""",
    ),
    "duplicate key": Wrong(
        RECIPE + TARGETS, CONV,
        """\
net.yaml:4:1: error[duplicate-key]: 'targets' is here a second time
  4 | targets: {host: {precision: fp32}}
    | ^^^^^^^ first at line 3
""",
    ),
    "several at once": Wrong(
        "bolt: 1\nname: 7\n" + MODEL + "targets: {hots: {precision: fp8}}\n", CONV,
        """\
net.yaml:2:7: error[wrong-type]: 'name' must be a string, found the integer 7
  2 | name: 7
    |       ^ write it in quotes
net.yaml:4:11: error[unknown-target]: unknown target 'hots'
  4 | targets: {hots: {precision: fp8}}
    |           ^^^^ did you mean 'host'?
net.yaml:4:29: error[bad-value]: 'targets.hots.precision' must be fp32, fp16 or bf16, found the string 'fp8'
  4 | targets: {hots: {precision: fp8}}
    |                             ^^^
""",
    ),
    "empty recipe": Wrong(
        "", CONV,
        """\
net.yaml:1:1: error[empty-recipe]: the recipe is empty
  1 |
    | ^ a recipe begins with 'bolt: 1'
""",
    ),
    "missing model": Wrong(
        RECIPE, None,
        """\
net.yaml:2:15: error[no-such-model]: the model file 'net.onnx' does not exist
  2 | model: {onnx: net.onnx, batch: 1}
    |               ^^^^^^^^
""",
    ),
    "unknown target": Wrong(
        "bolt: 1\n" + MODEL + "targets: {hots: {precision: fp32}}\n", CONV,
        """\
net.yaml:3:11: error[unknown-target]: unknown target 'hots'
  3 | targets: {hots: {precision: fp32}}
    |           ^^^^ did you mean 'host'?
""",
    ),
    "empty model": Wrong(
        RECIPE, b"",
        f"net.yaml:2:15: error[model-empty]: the model 'HERE/net.onnx' is empty\n{NAMED} export or download it again\n",
    ),
    "a PNG named .onnx": Wrong(
        RECIPE, b"\x89PNG\r\n\x1a\n" + bytes(64),
        f"net.yaml:2:15: error[not-onnx]: 'HERE/net.onnx' is not an ONNX file but a PNG image\n{NAMED}\n",
    ),
    "truncated model": Wrong(
        RECIPE, CONV[:-20],
        f"""\
net.yaml:2:15: error[not-onnx]: 'HERE/net.onnx' cannot be parsed as an ONNX file
{NAMED} it may be truncated; export or download it again
""",
    ),
    "unsupported operators": Wrong(
        RECIPE, unsupported_model().SerializeToString(),
        f"""\
net.yaml:2:15: error[unsupported-op]: HERE/net.onnx: operator ImageDecoder is not supported: nodes 'decode', 'again'
{NAMED} export the model without it, or offer an importer for it (entry points of bolt_build.ops)
net.yaml:2:15: error[unsupported-op]: HERE/net.onnx: operator NonMaxSuppression is not supported: node 'sample'
{NAMED} data decide how many it finds, and shapes are static: end the model in front of it, as \
model.outputs: ['a']
""",
    ),
    "unbound dimensions": Wrong(
        RECIPE, open_model().SerializeToString(),
        """\
net.yaml:2:1: error[unbound-dimension]: HERE/net.onnx: dimensions without an extent: 'rows' \
(dimension 2 of input 'x'), 'columns' (dimension 3 of input 'x')
  2 | model: {onnx: net.onnx, batch: 1}
    | ^^^^^ set model.dims in the recipe: dims: {rows: SIZE, columns: SIZE}
""",
    ),
    "shapes that do not fit": Wrong(
        RECIPE, unfitting_model().SerializeToString(),
        f"""\
net.yaml:2:15: error[shape-mismatch]: HERE/net.onnx: Conv 'conv': the input has 3 channels, the weight [2, 4, 3, 3] \
with 1 groups takes 4
{NAMED}
net.yaml:2:15: error[shape-mismatch]: HERE/net.onnx: Add 'shift': shapes [1, 3, 8, 8] and [5] do not broadcast
{NAMED}
""",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def left(folder: Path) -> list[str]:
    """Every file under a folder but the lock of a build's directory, which stays."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    )


@pytest.mark.parametrize("verb", [[], ["build", "--dry-run"]], ids=["build", "dry run"])
@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_built(case: str, verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = WRONG[case]
    Path("net.yaml").write_text(wrong.recipe)
    if wrong.model is not None:
        Path("net.onnx").write_bytes(wrong.model)
    before = left(tmp_path)
    assert main([*verb, "net.yaml"]) == wrong.code
    said = capsys.readouterr().err
    assert said == wrong.said.replace("HERE", str(tmp_path))
    assert "Traceback" not in said
    assert left(tmp_path) == before


def test_no_compiler(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("net.yaml").write_text(RECIPE)
    Path("net.onnx").write_bytes(CONV)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    before = left(tmp_path)
    assert main(["net.yaml", "--cache", str(cache)]) == 7
    assert capsys.readouterr().err == (
        "cxx: error[missing-tool]: no C++ compiler (g++, clang++ or c++) on PATH\n"
        "  hint: apt-get install g++\n"
    )  # fmt: skip
    assert left(tmp_path) == before


# -- weights and inputs that are not the engine's ------------------------------------------------------------------


def sentence(text: str) -> str:
    """`text` with CRC in place of any checksum."""
    return re.sub(r"\b[0-9a-f]{8}\b", "CRC", text)


def test_weights_that_are_not_the_engines(right_engines: tuple[Built, Built], tmp_path: Path) -> None:
    """By the runner and by the loader; one whose bytes were changed, too."""
    engine, other = right_engines
    data = engine.weights.read_bytes()
    Path("cut.weights").write_bytes(data[:-100])
    Path("stub.weights").write_bytes(data[:50])
    Path("changed.weights").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    Path("foreign.weights").write_bytes(other.weights.read_bytes())
    Path("other.weights").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2000))
    np.save("image.npy", np.zeros((2, 3, 13, 11), np.float32))
    before = left(tmp_path)
    said = {}
    command = [engine.directory / "residual-run", "--input", "image.npy", "--output", "y.npy"]
    for name in ("cut", "stub", "changed", "foreign", "other", "none"):
        done = subprocess.run([*command, "--weights", f"{name}.weights"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (3, "")
        said[name] = sentence(done.stderr.removeprefix("residual-run: ").removesuffix("\n"))
        with Engine(engine.library) as loaded, pytest.raises(EngineError) as caught:
            loaded.create(Path(f"{name}.weights"))
        assert sentence(re.sub(r" \([a-z ]+\)$", "", str(caught.value))) == said[name]
    assert said == {
        "cut": f"'cut.weights' is truncated: {len(data) - 100} bytes where {len(data)} are expected",
        "stub": "'stub.weights' is truncated: 50 bytes, fewer than its header",
        "changed": "'changed.weights' is damaged: tensor 'fc.b' has checksum CRC where CRC is expected",
        "foreign": f"'foreign.weights' belongs to another engine: layout digest {other.plan.layout_digest} where "
        f"{engine.plan.layout_digest} is expected",
        "other": "'other.weights' is not a bolt-build weights file",
        "none": "cannot open weights 'none.weights': No such file or directory",
    }
    assert left(tmp_path) == before


def test_an_input_that_does_not_fit(
    right_engines: tuple[Built, Built], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engine, _ = right_engines
    np.save("image.npy", np.zeros((2, 3, 11, 13), np.float32))
    recipe = engine.directory.parents[2] / "residual.yaml"
    generated = ["--generated", str(engine.directory.parents[1])]
    before = left(tmp_path)
    assert main(["run", str(recipe), *generated, "--input", "image.npy", "--output", "y.npy"]) == 3
    assert capfd.readouterr().err == (
        "residual-run: input 'image' must be f32 (2, 3, 13, 11); 'image.npy' is f32 (2, 3, 11, 13)\n"
    )
    assert left(tmp_path) == before


def test_no_environment_is_needed_to_run(right_engines: tuple[Built, Built], tmp_path: Path) -> None:
    """The runner finds the libraries beside it, wherever it is called from and with an empty environment."""
    engine, _ = right_engines
    np.save("image.npy", np.ones((2, 3, 13, 11), np.float32))
    done = subprocess.run(
        [engine.directory / "residual-run", "--input", "image.npy", "--output", os.fspath(tmp_path / "y.npy")],
        capture_output=True, text=True, check=False, cwd="/", env={},
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr == "residual-run: cannot open 'image.npy': No such file or directory\n"
    done = subprocess.run(
        [engine.directory / "residual-run", "--input", tmp_path / "image.npy", "--output", tmp_path / "y.npy"],
        capture_output=True, text=True, check=False, cwd="/", env={},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert np.load("y.npy").shape == (2, 5)

"""`bolt-build init` and `bolt-build schema`: how a stranger begins."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml
from graph_models import model, node, saved, tensor
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.cli import init
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import all_targets
from bolt_build.toolchain import Tool, Toolchain
from bolt_build.toolchain.machine import FoundGpu
from bolt_build.workflows.new_recipe import NewRecipe

ALL = ("recipe.schema.json", ".gitignore")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "found_gpus", lambda: ())
    monkeypatch.setattr(init, "probe", lambda names: Toolchain(()))


def write(*dims: int | str | None, operator: str = "Relu", name: str = "net.onnx") -> None:
    saved(Path(), model([node(operator, "x", "y")], [tensor("x", dims)]), name)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["init", *words]) == code
    shown = capsys.readouterr()
    return shown.out + shown.err


def test_a_model_is_one_command_from_a_recipe_that_builds(capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 8)
    assert said(capsys, "net.onnx") == (
        "wrote net.yaml\nwrote recipe.schema.json\nwrote .gitignore\n"
        "net.yaml: host: can be planned, 1 step\nbuild it with: bolt-build net.yaml\n"
    )
    text = Path("net.yaml").read_text()
    assert text.splitlines()[:8] == [
        "# yaml-language-server: $schema=recipe.schema.json",
        "# Every key with its default: bolt-build check --expand",
        "bolt: 1",
        "model:",
        "  onnx: net.onnx",
        '  batch: [1]   # the model\'s "N": one plan for each size, with the same weights',
        "targets:",
        "  host: {precision: fp32}",
    ]
    assert [line for line in text.splitlines() if line.startswith("  # ")] == [
        f"  # {target.name}: {{precision: {target.precisions[0]}}}" for target in all_targets() if target.name != "host"
    ]
    recipe = load_recipe(Path("net.yaml"))
    assert (recipe.name, recipe.model.batch, [spec.name for spec in recipe.targets]) == ("net", (1,), ["host"])
    jsonschema.validate(yaml.safe_load(text), json.loads(Path("recipe.schema.json").read_text()))
    assert Path(".gitignore").read_text() == "generated/\n"


def test_what_is_commented_out_is_right_when_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 8)
    said(capsys, "net.onnx")
    lines = Path("net.yaml").read_text().splitlines()
    open_ = [line.replace("# ", "", 1) if line.startswith(("  # ", "# policy", "# tuning", "# verify")) else line
             for line in lines]  # fmt: skip
    Path("net.yaml").write_text("\n".join(open_) + "\n")
    recipe = load_recipe(Path("net.yaml"))
    assert [spec.name for spec in recipe.targets] == [target.name for target in all_targets()]
    assert recipe.tuning.lock == str(Path.cwd() / "net.lock")


def test_the_gpu_that_is_here_is_a_target(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "found_gpus", lambda: (FoundGpu("NVIDIA H200", 90),))
    write("N", 8)
    said(capsys, "net.onnx")
    assert [spec.name for spec in load_recipe(Path("net.yaml")).targets] == ["host", "h200"]


def test_targets_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 8)
    said(capsys, "net.onnx", "--target", "t4", "--recipe", "deep/other.yaml")
    recipe = load_recipe(Path("deep/other.yaml"))
    assert ([spec.name for spec in recipe.targets], recipe.model.onnx) == (["t4"], str(Path.cwd() / "net.onnx"))
    assert Path("deep/recipe.schema.json").is_file()
    assert said(capsys, "net.onnx", "--target", "h20", code=ExitCode.USAGE) == (
        "error[unknown-target]: there is no target 'h20'\n  hint: did you mean 'h200'?\n"
    )


def test_a_model_of_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "resnet18").endswith("build it with: bolt-build resnet18.yaml\n")
    assert load_recipe(Path("resnet18.yaml")).model.zoo == "resnet18"


def test_a_model_of_a_fixed_batch_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    write(32, 8)
    said(capsys, "net.onnx")
    assert load_recipe(Path("net.yaml")).model.batch == ()


def test_dimensions_that_are_open_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 3, "height", None)
    shown = said(capsys, "net.onnx", "--dim", "height=24", code=ExitCode.INVALID)
    assert "error[unbound-dimension]" in shown
    assert shown.endswith("set model.dims in the recipe: dims: {x.3: SIZE}\n")
    assert "  dims: {height: 24}   # symbolic in the model too: x.3: SIZE\n" in Path("net.yaml").read_text()
    said(capsys, "net.onnx", "--recipe", "none.yaml", code=ExitCode.INVALID)
    shown = "  # dims: {height: SIZE, x.3: SIZE}   # symbolic in the model: give sizes\n"
    assert shown in Path("none.yaml").read_text()
    said(capsys, "net.onnx", "--dim", "height=24", "--dim", "x.3=8", "--recipe", "other.yaml")
    assert load_recipe(Path("other.yaml")).model.dims == (("height", 24), ("x.3", 8))


def test_a_dimension_has_one_size(capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 3, "height")
    assert said(capsys, "net.onnx", "--dim", "height=24", "--dim", "height=32", code=ExitCode.USAGE) == (
        "error[two-sizes]: --dim gives 'height' two sizes, 24 and 32\n"
        "  hint: give it one; the recipe may list several: dims: {height: [24, 32]}\n"
    )
    assert not Path("net.yaml").exists()
    said(capsys, "net.onnx", "--dim", "height=24", "--dim", "height=24")
    assert load_recipe(Path("net.yaml")).model.dims == (("height", 24),)


def test_what_would_not_build_is_said_and_the_recipe_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 8, operator="NonZero")
    shown = said(capsys, "net.onnx", code=ExitCode.INVALID)
    assert "error[unsupported-op]" in shown
    assert "build it with" not in shown
    assert Path("net.yaml").is_file()


def test_a_tool_that_is_missing_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(names: Sequence[str]) -> Toolchain:
        return Toolchain(tuple(Tool(name, None, "", "", problem="gone", mend="get it") for name in names))

    monkeypatch.setattr(init, "probe", probe)
    assert said(capsys, "resnet18", code=ExitCode.TOOL_MISSING).endswith(
        "cxx: error[missing-tool]: gone\n  hint: get it\nonednn: error[missing-tool]: gone\n  hint: get it\n"
    )


def test_nothing_that_is_there_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 8)
    Path("net.yaml").write_text("mine")
    assert said(capsys, "net.onnx", code=ExitCode.USAGE) == (
        "error[exists]: net.yaml is there already\n  hint: go on with it, or name another file with --recipe\n"
    )
    Path("net.yaml").unlink()
    Path("recipe.schema.json").write_text("{}")
    Path(".gitignore").write_text("*.o")
    said(capsys, "net.onnx")
    assert Path("recipe.schema.json").read_text() == "{}"
    assert Path(".gitignore").read_text() == "*.o\ngenerated/\n"
    Path("net.yaml").unlink()
    assert "wrote net.yaml\nnet.yaml: host" in said(capsys, "net.onnx")


@pytest.mark.parametrize(
    ("word", "hint"), [("nett.onnx", "did you mean 'net.onnx'?"), ("resnet5", "did you mean 'resnet50'?")]
)
def test_a_model_that_is_not_there(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 8)
    assert said(capsys, word, code=ExitCode.INVALID) == (
        f"error[no-such-model]: there is no model '{word}'\n  hint: {hint}\n"
    )
    assert not Path(".gitignore").exists()


@pytest.mark.parametrize("word", ["net.onnx", "resnet50"])
def test_inputs_are_for_modules_alone(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 8)
    assert said(capsys, word, "--input", "x=1x8", code=ExitCode.USAGE) == (
        f"error[unused-option]: --input gives the inputs of a PyTorch module, and '{word}' is none\n"
        "  hint: leave it out; --dim gives a symbolic dimension its size\n"
    )
    assert os.listdir() == ["net.onnx"]


def test_a_model_whose_name_no_recipe_can_hold(capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"n\xe9t.onnx")
    write("N", 8, name=name)
    assert said(capsys, name, code=ExitCode.INVALID) == (
        "error[no-such-model]: no recipe can name 'n\ufffdt.onnx': its name is not UTF-8\n"
        "  hint: rename it: a recipe is UTF-8 text\n"
    )
    assert sorted(os.listdir()) == [name]


def test_what_is_no_file_is_named_and_not_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nets.onnx").mkdir()
    os.mkfifo("pipe.onnx")
    Path("link.onnx").symlink_to("gone.onnx")
    for word, what in (("nets", "a directory"), ("pipe", "a pipe"), ("link", "a link that leads nowhere")):
        assert said(capsys, f"{word}.onnx", code=ExitCode.INVALID) == (
            f"error[no-such-model]: '{word}.onnx' is {what}, no ONNX file\n"
        )
    assert "did you mean" not in said(capsys, "net.onnx", code=ExitCode.INVALID)


def test_the_command_that_builds_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    for name, shown in (("my net", "'my net.yaml'"), ("-net", "./-net.yaml")):
        write("N", 8)
        Path("net.onnx").rename(f"{name}.onnx")
        assert said(capsys, f"./{name}.onnx").endswith(f"build it with: bolt-build {shown}\n")


def test_a_file_that_is_no_model_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.onnx").write_bytes(b"no model")
    said(capsys, "net.onnx", code=ExitCode.INVALID)
    assert [path.name for path in Path().iterdir()] == ["net.onnx"]


def test_a_folder_that_cannot_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    write("N", 8)
    assert said(capsys, "net.onnx", "--recipe", "net.onnx/net.yaml", code=ExitCode.INVALID).endswith(
        "net.onnx: a file stands in the way\n  hint: write it to a folder of your own with --recipe FILE.yaml\n"
    )


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12)


@given(name=NAMES, dims=st.dictionaries(NAMES, st.integers(1, 999), max_size=3), batch=st.none() | NAMES)
def test_any_names_make_a_recipe_that_reads_back(name: str, dims: dict[str, int], batch: str | None) -> None:
    onnx = Path.cwd() / "models" / f"{name}.onnx"
    new = NewRecipe(
        Path("net.yaml"), onnx, None, batch, tuple(dims.items()), (), (TargetSpec("host", "fp32"),), ()
    )  # fmt: skip
    data = yaml.load(new.text("s.json"), Loader=yaml.CSafeLoader)
    assert data["model"]["onnx"] == f"models/{name}.onnx"
    assert {str(key): value for key, value in data["model"].get("dims", {}).items()} == dims
    left = replace(new, open_dims=tuple(dims), dims=())
    assert "dims" not in yaml.load(left.text("s.json"), Loader=yaml.CSafeLoader)["model"]


def test_a_model_of_the_zoo_comes_with_the_lock_of_its_target(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "resnet18", "--target", "h200")
    assert shown.splitlines()[:4] == ["wrote resnet18.yaml", *(f"wrote {name}" for name in (*ALL, "resnet18.lock"))]
    assert load_recipe(Path("resnet18.yaml")).tuning.lock == str(Path("resnet18.lock").resolve())
    assert Path("resnet18.lock").read_bytes() == (ROOT / "recipes" / "resnet18.lock").read_bytes()
    Path("resnet18.yaml").unlink()
    assert said(capsys, "resnet18", "--target", "h200", code=ExitCode.USAGE) == (
        "error[exists]: resnet18.lock is there already\n  hint: move it away, or name another recipe with --recipe\n"
    )
    said(capsys, "resnet18", "--target", "t4", "--recipe", "other.yaml")
    assert "# tuning: {lock: other.lock}" in Path("other.yaml").read_text()


def test_the_schema_completes_targets_and_zoo_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == "urn:bolt-build:recipe:1"
    targets = schema["properties"]["targets"]["properties"]
    assert list(targets) == [target.name for target in all_targets()]
    assert targets["t4"]["properties"]["precision"]["enum"] == ["fp16", "fp32"]
    assert targets["a100"]["properties"]["precision"]["enum"] == ["fp16", "bf16", "fp32"]
    good = {"bolt": 1, "model": {"zoo": "resnet50"}, "targets": {"host": None, "h200": {"precision": "fp16"}}}
    jsonschema.validate(good, schema)
    for wrong in ({"targets": {"h20": None}}, {"targets": {"t4": {"precision": "bf16"}}}, {"model": {"zoo": "resnet"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(good | wrong, schema)


TORCH = """\
class Module:
    pass

class nn:
    Module = Module

def manual_seed(seed): pass

def randn(*shape): return ("random", shape)

class onnx:
    @staticmethod
    def export(module, inputs, path, **options):
        import json, pathlib, shutil
        said = {"inputs": inputs, "names": options["input_names"], "axes": options["dynamic_axes"]}
        pathlib.Path("exported.json").write_text(json.dumps(said))
        shutil.copy("theirs.onnx", path)
"""
GIVE = "let the function return the module and example inputs"
NETS = """\
import torch

class Net(torch.nn.Module):
    def eval(self): return self
    def forward(self, x, mask=None): return x

def net(): return Net()
def pair(): return Net(), (1, 2)
def number(): return 7
def broken(): raise RuntimeError("no weights\\nat all")
"""


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with functions that return modules of a PyTorch whose export gives the same file for all."""
    Path("torch.py").write_text(TORCH)
    Path("nets.py").write_text(NETS)
    write("N", 8, name="theirs.onnx")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    for name in ("torch", "nets"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("nets")
def test_a_function_that_returns_a_module_is_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "nets:net", "--input", "x=2x8").startswith("wrote net.onnx\nwrote net.yaml\n")
    assert json.loads(Path("exported.json").read_text()) == {
        "inputs": [["random", [2, 8]]], "names": ["x"], "axes": {"x": {"0": "N"}},
    }  # fmt: skip
    assert "  onnx: net.onnx\n" in Path("net.yaml").read_text()


@pytest.mark.usefixtures("nets")
def test_examples_of_inputs_come_with_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "nets:pair", "--recipe", "sub/other.yaml")
    found = json.loads(Path("exported.json").read_text())
    assert (found["inputs"], found["names"]) == ([1, 2], ["x", "mask"])
    assert {path.name for path in Path("sub").iterdir()} == {"other.onnx", "other.yaml", *ALL}
    assert said(capsys, "nets:pair", "--recipe", "sub/other.yaml", code=ExitCode.USAGE) == (
        "error[exists]: sub/other.yaml is there already\n  hint: go on with it, or name another recipe with --recipe\n"
        "error[exists]: sub/other.onnx is there already\n  hint: go on with it, or name another recipe with --recipe\n"
    )


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("nets:net",),
            ("error[no-inputs]: the shape of nets:net's input 'x' is not known\n"
            f"  hint: say it with --input x=1x3x224x224, or {GIVE}\n"),
        ),
        (
            ("nets:net", "--input", "y=1x2"),
            "error[other-inputs]: nets:net has no input 'y'\n  hint: its forward takes: x, mask\n",
        ),
        (
            ("nets:number",),
            ("error[no-module]: nets:number returns int, which is no torch.nn.Module\n"
            "  hint: let it return the module, or the module and a tuple of example inputs\n"),
        ),
        (("nets:broken",), "error[model-failed]: nets:broken() raised RuntimeError: no weights\n"),
        (("nets:nett",), "error[no-such-function]: nets has no 'nett'\n  hint: did you mean 'net'?\n"),
        (
            ("gone:net",),
            ("error[no-such-function]: gone cannot be imported: No module named 'gone'\n"
            "  hint: run it where Python finds it\n"),
        ),
    ],
)  # fmt: skip
def test_what_is_no_module_is_said(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, *words, code=ExitCode.INVALID) == message
    assert not list(Path().glob("ne*.yaml"))


def test_without_pytorch_a_function_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text("def net(): return 7\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert said(capsys, "mine:net", code=ExitCode.TOOL_MISSING) == (
        "error[missing-tool]: mine:net is exported by PyTorch, which cannot be imported"
        " (import of torch halted; None in sys.modules)\n"
        "  hint: python -m pip install torch, or export it to ONNX where torch is\n"
    )

"""What is installed: a slim installation has all that host builds need, and nothing imports what it leaves out."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from bolt_build.toolchain.wheels import EXTRAS, installing

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("cutlass", "cutlass_library", "cuda", "networkx", "pydot", "scipy", "treelib")
"""What nvidia-cutlass is, and what it needs: of it bolt-build reads headers alone."""


def requirements(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_slim_is_the_project_with_host_and_verify_but_without_cutlass() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {*project["dependencies"], *extras["host"], *extras["verify"]} - {"nvidia-cutlass==4.2.0.0"}
    assert sorted(requirements((ROOT / "slim.txt").read_text())) == sorted(wanted)


def test_hints_name_the_packages_that_extras_bring() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name: list(packages) for name, packages in EXTRAS.items()} == {name: extras[name] for name in EXTRAS}
    assert installing("verify") == "python -m pip install 'onnxruntime>=1.18'"


def test_no_file_imports_what_slim_leaves_out() -> None:
    found = []
    for path in sorted((ROOT / "bolt_build").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names.append(node.module or "")
            found += [f"{path.name} imports {name}" for name in names if name.split(".")[0] in LEFT_OUT]
    assert found == []


def test_a_host_plan_works_where_importing_it_fails(tmp_path: Path) -> None:
    """Nor does a library on the way import it."""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 4, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", types[:1], types[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    (tmp_path / "net.yaml").write_text("bolt: 1\nmodel: {onnx: net.onnx}\ntargets: {host: {}}\n")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({LEFT_OUT}))\n"
        "from bolt_build.cli.main import main\n"
        "sys.exit(main(['plan', 'net.yaml']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    assert "for host" in done.stdout

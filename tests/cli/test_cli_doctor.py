"""`bolt-build doctor`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bolt_build.cli import doctor
from bolt_build.cli.main import main
from bolt_build.targets import HOST
from bolt_build.toolchain import Tool, Toolchain

FOUND = {
    "cxx": Tool("cxx", "/usr/bin/g++", "12.2.0", "d1"),
    "onednn": Tool("onednn", "/env/lib/libdnnl.so", "3.2.0", "d2"),
    "onnxruntime": Tool("onnxruntime", "/env/onnxruntime", "1.31.1", "d3"),
}


@pytest.fixture(autouse=True)
def _one_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "sound_targets", lambda: (HOST,))
    monkeypatch.setattr(doctor, "try_cxx", lambda tool: None)


def machine_with(monkeypatch: pytest.MonkeyPatch, **tools: Tool) -> None:
    """Let the probe find `FOUND`, with `tools` in place of those of the same name."""

    def probe(names: Sequence[str]) -> Toolchain:
        return Toolchain(tuple({**FOUND, **tools}[name] for name in names))

    monkeypatch.setattr(doctor, "probe", probe)


def lacking(name: str) -> Tool:
    return Tool(name, None, "", "", problem=f"{name} is not installed", mend=f"pip install {name}")


def test_everything_is_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    machine_with(monkeypatch)
    assert main(["doctor"]) == 0
    assert (
        capsys.readouterr().out
        == """\
tool         version  needed by  where
cxx          12.2.0   host       /usr/bin/g++
onednn       3.2.0    host       /env/lib/libdnnl.so
onnxruntime  1.31.1   verify     /env/onnxruntime
"""
    )


def test_what_is_missing_comes_with_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_with(monkeypatch, onednn=lacking("onednn"))
    assert main(["doctor"]) == 7
    assert (
        capsys.readouterr().out
        == """\
tool         version  needed by  where
cxx          12.2.0   host       /usr/bin/g++
onednn       -        host       missing
onnxruntime  1.31.1   verify     /env/onnxruntime

onednn: onednn is not installed
  pip install onednn
"""
    )


def test_without_the_verifier_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_with(monkeypatch, onnxruntime=lacking("onnxruntime"))
    assert main(["doctor"]) == 7
    assert capsys.readouterr().out.endswith("\nonnxruntime: onnxruntime is not installed\n  pip install onnxruntime\n")


def test_one_target_that_builds_is_not_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_with(monkeypatch, magic=lacking("magic"))
    other = replace(HOST, name="other", description="another machine", precisions=("fp16",), tools=("cxx", "magic"))
    monkeypatch.setattr(doctor, "sound_targets", lambda: (HOST, other))
    assert main(["doctor", "--target", "host"]) == 0
    assert "magic" not in capsys.readouterr().out
    assert main(["doctor", "--target", "othr"]) == 2
    assert capsys.readouterr().err == (
        "error[unknown-target]: there is no target 'othr'\n  hint: did you mean 'other'?\n"
    )
    assert main(["doctor", "--targets"]) == 7
    assert (
        capsys.readouterr().out
        == """\
target  precisions  builds here        description
host    fp32, bf16  yes                this kind of CPU (x86-64-v3), through oneDNN
other   fp16        no: magic missing  another machine

'bolt-build doctor' says how to install what is missing.
"""
    )


def test_a_compiler_that_cannot_do_it_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_with(monkeypatch)
    monkeypatch.setattr(doctor, "try_cxx", lambda tool: "it knows no OpenMP")
    assert main(["doctor"]) == 7
    assert capsys.readouterr().out.endswith("\ncxx: it knows no OpenMP\n  apt-get install g++\n")


def test_json_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    machine_with(monkeypatch, onednn=lacking("onednn"))
    assert main(["doctor", "--format", "json"]) == 7
    report = json.loads(capsys.readouterr().out)
    assert [tool["name"] for tool in report["tools"]] == ["cxx", "onednn", "onnxruntime"]
    assert report["tools"][1] == {
        "name": "onednn",
        "version": None,
        "path": None,
        "digest": None,
        "problem": "onednn is not installed",
        "mend": "pip install onednn",
    }
    assert report["targets"] == [
        {
            "name": "host",
            "description": "this kind of CPU (x86-64-v3), through oneDNN",
            "precisions": ["fp32", "bf16"],
            "builds_here": False,
            "missing": ["onednn"],
        }
    ]


def test_a_recipe_asks_for_the_tools_of_its_targets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine_with(monkeypatch, magic=lacking("magic"))
    other = replace(HOST, name="other", tools=("cxx", "magic"))
    monkeypatch.setattr(doctor, "sound_targets", lambda: (HOST, other))
    (tmp_path / "net.yaml").write_text("bolt: 1\nmodel: {zoo: resnet18}\ntargets: {host: }\n")
    assert main(["doctor", str(tmp_path / "net.yaml"), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [target["name"] for target in report["targets"]] == ["host"]
    assert main(["doctor", str(tmp_path / "net.yaml"), "--target", "other"]) == 2
    assert capsys.readouterr().err == "error[unknown-target]: there is no target 'other'\n  hint: there are: host\n"

"""What a command leaves for CI services: `--report`, `--junit`, `--summary`, `--code-quality`, `--annotations`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.cli.main import main
from bolt_build.errors import Diagnostic, ExitCode, Mark
from bolt_build.report.annotations import code_quality, github_commands
from bolt_build.report.junit import junit_xml
from bolt_build.report.outcome_json import outcome_json
from bolt_build.report.summary import summary_markdown
from bolt_build.verify.report import REPORT_VERSION, BatchReport, LayerReport, OutputReport, VerifyReport
from bolt_build.workflows.outcome import Artifact, EngineOutcome, Outcome, RecipeOutcome

LAYER = LayerReport(
    0, "conv1", "c", "onednn(primitive=convolution)", (1, 8), (1, 8), "f32", 1e-6, 1.0, 1e-7, 2.5, 10.0, 0.5, 1e-6,
    None, 0, 0, True, True,
)  # fmt: skip
BLIND = replace(LAYER, step=1, name="pool <1>", tells=False)
WRONG = replace(LAYER, step=2, name="fc", largest=75.0, spread=12.0, max_abs=0.5, ok=False)
OUTPUT = OutputReport("y", 0.5, 0.25, 1e-3, 0.1, 1e-4, 0.97, None, None, 1.0, None, 0, 0, True, False)
DEPARTS = Diagnostic("departs", "batch 1: layer 'fc' is the first that departs", hint="look at its kernel")


def verification(*layers: LayerReport, ok: bool) -> VerifyReport:
    batch = BatchReport(1, 4, (replace(OUTPUT, ok=ok),), 0, layers, True, ok)
    problems = () if ok else (DEPARTS,)
    return VerifyReport(
        REPORT_VERSION, "net", "host", "fp32", "onnxruntime 1", 0, "seeded", None, ok, (batch,), problems
    )


GOOD = EngineOutcome(
    "host", "generated/net/host", (Artifact("libnet.so", 1_500_000), Artifact("net.weights", None)), True,
    verification=verification(LAYER, BLIND, ok=True),
)  # fmt: skip
TASKS = (
    TaskEvent(EventKind.FINISHED, "host", "conv", "compile conv.cpp", 2.0, reasons=("conv.h changed",)),
    TaskEvent(EventKind.FINISHED, "host", "pool", "compile pool.cpp", 0.25, cached=True),
    TaskEvent(EventKind.FINISHED, "host", "verify", "verify against onnxruntime", 1.5),
)
ELSEWHERE = EngineOutcome("h200", "generated/net/h200", (), elsewhere="there is no NVIDIA GPU on this machine")
DONE = RecipeOutcome("net", "net.yaml", ExitCode.OK, 4.0, 0.0, (GOOD, ELSEWHERE), TASKS)
LOG = "kernel.cu(3): error: `x`\n```\n"
BROKEN = TaskEvent(
    EventKind.FAILED, "h200", "k_1", "compile kernel.cu", 1.0, text="ended with 1", log=LOG, command="nvcc kernel.cu"
)  # fmt: skip
BAD = EngineOutcome("host", "generated/net/host", (), False, verification=verification(LAYER, WRONG, ok=False))
UNFINISHED = EngineOutcome("h200", "generated/net/h200")
FAILED = RecipeOutcome(
    "net", "net.yaml", ExitCode.TASK_FAILED, 4.0, 0.0, (BAD, UNFINISHED), TASKS, (BROKEN,), ("link libnet.so",)
)  # fmt: skip
MISSING = Diagnostic("missing-tool", "nvcc is not here", hint="install it", subject="nvcc")
SUCCESS = Outcome("build", ExitCode.OK, 4.5, (DONE,), ())
FAILURE = Outcome("build", ExitCode.TASK_FAILED, 4.5, (FAILED,), (MISSING,))


def test_json_has_every_key_whatever_came_of_it() -> None:
    def keys(value: object, at: str = "") -> set[str]:
        if isinstance(value, dict):
            return {f"{at}.{key}" for key in value}.union(*(keys(each, f"{at}.{key}") for key, each in value.items()))
        return set().union(*(keys(each, at) for each in value)) if isinstance(value, list) else set()

    good, bad = json.loads(outcome_json(SUCCESS)), json.loads(outcome_json(FAILURE))
    assert good.keys() == bad.keys()
    assert good["recipes"][0].keys() == bad["recipes"][0].keys()
    assert keys(good["recipes"][0]["targets"]) >= keys(bad["recipes"][0]["targets"]) - {
        ".verification.diagnostics." + key
        for key in ("code", "severity", "message", "file", "line", "column", "length", "subject", "hint")
    }
    assert (good["exit_code"], bad["exit_code"]) == (0, 4)
    (target, other) = good["recipes"][0]["targets"]
    assert target["artifacts"] == [{"name": "libnet.so", "bytes": 1_500_000}, {"name": "net.weights", "bytes": None}]
    assert target["verification"]["batches"][0]["not_judged"] == 1
    assert (other["verified"], other["elsewhere"]) == (None, "there is no NVIDIA GPU on this machine")
    assert bad["recipes"][0]["targets"][0]["verification"]["batches"][0]["departing"] == ["fc"]
    assert bad["recipes"][0]["tasks"][-1] == {
        "target": "h200", "task": "k_1", "label": "compile kernel.cu", "kind": "failed", "seconds": 1.0,
        "cached": False, "as_for": "", "reasons": [], "text": "ended with 1", "log": LOG, "command": "nvcc kernel.cu",
    }  # fmt: skip
    assert bad["recipes"][0]["not_attempted"] == ["link libnet.so"]


def test_junit_of_a_success() -> None:
    assert junit_xml(SUCCESS) == (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<testsuites name="bolt-build build">\n'
        ' <testsuite name="net/host" time="1.500" failures="0" errors="0" skipped="1" tests="4">\n'
        '  <testcase classname="net.host.batch 1" name="layer conv1" />\n'
        '  <testcase classname="net.host.batch 1" name="layer pool &lt;1&gt;">\n'
        '   <skipped message="rounding alone could make a tensor as large as the reference\'s: nothing judges it" />\n'
        "  </testcase>\n"
        '  <testcase classname="net.host.batch 1" name="output y" />\n'
        '  <testcase classname="net.host" name="agrees with onnxruntime 1" />\n'
        " </testsuite>\n"
        ' <testsuite name="net/h200" time="0.000" failures="0" errors="0" skipped="1" tests="1">\n'
        '  <testcase classname="net.h200" name="verification">\n'
        '   <skipped message="there is no NVIDIA GPU on this machine" />\n'
        "  </testcase>\n"
        " </testsuite>\n"
        "</testsuites>\n"
    )


def test_junit_of_a_failure() -> None:
    root = xml.fromstring(junit_xml(FAILURE))
    counts = {suite.get("name"): [suite.get(each) for each in ("tests", "failures", "errors")] for suite in root}
    assert counts == {"bolt-build": ["1", "0", "1"], "net/host": ["4", "3", "0"], "net/h200": ["1", "0", "1"]}
    said = {case.get("name"): case[0].get("message") for case in root.iter("testcase") if len(case)}
    assert said == {
        "recipes": "nvcc is not here",
        "layer fc": "off by 75 of 10 times what rounding does, spread 12 of 1.5; max |error| 5.00e-01",
        "output y": "max |error| 5.00e-01, error 2.50e-01 of 1.00e-03, cosine 0.9700000",
        "agrees with onnxruntime 1": "batch 1: layer 'fc' is the first that departs",
        "compile kernel.cu": "ended with 1",
    }


def test_the_summary_of_a_success() -> None:
    assert summary_markdown(SUCCESS) == (
        "### bolt-build build: done\n\n"
        "| engine | verified | worst layer | size | tasks run | from the cache | time |\n"
        "| --- | --- | --- | ---: | ---: | ---: | ---: |\n"
        "| net/host | yes | conv1: 33% of what rounding may do | 1.5 MB | 2 | 1 | 3.8 s |\n"
        "| net/h200 | not here: there is no NVIDIA GPU on this machine |  |  | 0 | 0 | 0.0 s |\n\n"
    )


def test_the_summary_of_a_failure_has_the_log() -> None:
    text = summary_markdown(FAILURE)
    assert text.startswith("### bolt-build build: a task failed\n\n")
    assert text.endswith(
        "- **error** nvcc is not here *install it*\n"
        "- **error** `net/host`: batch 1: layer 'fc' is the first that departs\n"
        "- **error** `net/h200`: compile kernel.cu: ended with 1\n\n"
        "````\nkernel.cu(3): error: `x`\n```\n````\n\n"
    )


def test_annotations_stand_at_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert github_commands(FAILURE) == (
        "::error title=bolt-build%3A missing-tool::nvcc is not here%0Ahint: install it\n"
        "::error file=net.yaml,line=1,title=bolt-build%3A departs::"
        "net/host: batch 1: layer 'fc' is the first that departs%0Ahint: look at its kernel\n"
        "::error file=net.yaml,line=1,title=bolt-build%3A task-failed::net/h200: compile kernel.cu: ended with 1\n"
    )
    found = json.loads(code_quality(FAILURE))
    assert [(each["check_name"], each["severity"], each["location"]) for each in found[1:]] == [
        ("bolt-build departs", "critical", {"path": "net.yaml", "lines": {"begin": 1}}),
        ("bolt-build task-failed", "critical", {"path": "net.yaml", "lines": {"begin": 1}}),
    ]
    assert len({each["fingerprint"] for each in found}) == 3


@given(st.text(max_size=40), st.text(max_size=40))
def test_nothing_in_a_name_breaks_a_form(name: str, message: str) -> None:
    """A command is one line, JUnit is XML, whatever a model calls its layers."""
    wrong = Diagnostic("odd", message, Mark("net.yaml", 1, 1), subject=name)
    engine = replace(BAD, verification=verification(replace(WRONG, name=name, kernel=message), ok=False))
    recipe = replace(FAILED, engines=(engine,), diagnostics=(wrong,), failed=(replace(BROKEN, text=message, log=name),))
    outcome = Outcome("build", ExitCode.INVALID, 1.0, (recipe,), (wrong,))
    assert all(line.startswith("::error ") for line in github_commands(outcome).split("\n")[:-1])
    xml.fromstring(junit_xml(outcome))
    json.loads(outcome_json(outcome))
    assert "\r" not in summary_markdown(outcome)


FILES = ("--report", "out.json", "--junit", "out.xml", "--summary", "out.md", "--code-quality", "quality.json")


@pytest.mark.parametrize("verb", [(), ("check",), ("verify",), ("emulate",)])
def test_a_recipe_that_is_wrong_leaves_every_file(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text("bolt: 1\nmodel: {onnx: m.onnx}\ntargets: {hots: {}}\n")
    Path("m.onnx").touch()
    Path("out.md").write_text("# before\n")
    assert main([*verb, "net.yaml", *FILES, "--annotations", "github"]) == ExitCode.INVALID
    command = "::error file=net.yaml,line=3,col=11,title=bolt-build%3A unknown-target::"
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::")]
    assert said.startswith(command)
    found = json.loads(Path("out.json").read_text())
    assert (found["verb"], found["exit_code"], found["recipes"]) == ((*verb, "build")[0], 3, [])
    assert [(each["code"], each["line"]) for each in found["diagnostics"]] == [("unknown-target", 3)]
    assert xml.parse("out.xml").find("testsuite/testcase/error") is not None
    assert Path("out.md").read_text().startswith("# before\n### bolt-build ")
    assert json.loads(Path("quality.json").read_text())[0]["location"] == {"path": "net.yaml", "lines": {"begin": 3}}


def test_a_place_that_is_none_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "net.yaml", "--junit", "gone/out.xml"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        f"gone/out.xml: error[no-place]: its directory does not exist\n  hint: make it with: mkdir -p {tmp_path}/gone\n"
    )

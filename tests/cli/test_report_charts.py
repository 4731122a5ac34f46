"""Plans and graphs as charts, drawn by Mermaid and as SVG."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from locked_net import new_net

from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.graph.text import parse_graph
from bolt_build.report.explained.explanation import Batch, Totals
from bolt_build.report.pages.chart import Box, Chart, Group, ShownKernel, fill, graph_group, shade
from bolt_build.report.pages.mermaid import mermaid

GRAPH = """\
graph tiny batch=1 (%data: f32[1,3,8,8]) -> (%"out put") {
  const %w: f32[4,3,3,3]
  %y: f32[1,4,6,6] = conv(%data, %w)  // "/conv1"
  %z: f32[1,4,6,6] = relu(%y)  // "/a\\"b<br>#1;"
  %"out put": f32[1,4,6,6] = add(%y, %z) | clip beta=6.0  // "/add"
}
"""
CHART = """\
flowchart TD
  subgraph g0["tiny for host"]
    g0i0(["data<br/>f32[1,3,8,8]"])
    g0n0["/conv1<br/>conv<br/>no step of its own"]
    g0i0 -->|"1x3x8x8"| g0n0
    g0n1["/a#34;b#60;br#62;#35;1;<br/>relu<br/>no step of its own"]
    g0n0 -->|"1x4x6x6"| g0n1
    g0n2["/add<br/>add+clip<br/>no step of its own"]
    g0n0 -->|"1x4x6x6"| g0n2
    g0n1 -->|"1x4x6x6"| g0n2
    g0o0(["out put"])
    g0n2 --> g0o0
  end
  classDef view fill:#ffffff,stroke:#5b636b,stroke-dasharray:4 3,color:#1c2024
  class g0n0,g0n1,g0n2 view
"""
NOTHING = Batch(1, (), Totals(0.0, 0, 0, 0.0, 0, 0.0, 0, 0.0))


def test_a_graph() -> None:
    """An arrow a tensor; constants are left out; what names hold is text."""
    group = graph_group("g0", "tiny for host", parse_graph(GRAPH), NOTHING)
    assert mermaid(Chart((group,))) == CHART


def test_the_kernels_that_take_most_have_a_color_of_their_own() -> None:
    """A step is darker the more of the time it takes."""
    kernels = [ShownKernel(f"k{n:02}", 1, float(n), n / 105) for n in range(14, 0, -1)]
    boxes = (Box("s0", ("one",), "k14", 0.4), Box("s1", ("two",), "k14", 0.1), Box("s2", ("three",), "view"))
    group = Group("b", "", boxes, (), tuple(kernels))
    colors = group.colors
    assert list(colors) == [each.name for each in kernels]
    assert len(set(list(colors.values())[:12])) == 12
    assert colors["k02"] == colors["k01"]
    assert [shade(share, 0.4) for share in (None, 0.0, 0.09, 0.11, 0.29, 0.31, 0.4)] == [0, 0, 0, 1, 2, 3, 3]
    dark = [sum(int(fill("#2f6fb2", level)[at : at + 2], 16) for at in (1, 3, 5)) for level in range(4)]
    assert dark == sorted(dark, reverse=True)
    drawn = mermaid(Chart((group,)))
    assert re.findall(r"  class (\w+) (\w+)", drawn) == [("s0", "g0k0_3"), ("s1", "g0k0_1"), ("s2", "view")]


@pytest.fixture
def explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:  # fmt: skip
    """What `explain` says, as JSON, of a locked net that lies in the current directory."""
    monkeypatch.chdir(tmp_path)
    net = new_net()
    net.lock(net.tuned())
    assert main(["explain", "net.yaml", "--format", "json", "--cache", "cache"]) == ExitCode.OK
    (found,) = json.loads(capsys.readouterr().out)
    return dict(found)


def test_a_plan_says_what_explain_says(explained: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Every step with its kernel, its time and its share; in both forms, and of one batch where it is asked for."""
    assert main(["plan", "net.yaml", "--format", "mermaid", "--cache", "cache"]) == ExitCode.OK
    chart = capsys.readouterr().out
    for batch in explained["batches"]:
        whole = batch["totals"]["time"]
        for layer in batch["layers"]:
            (box,) = re.findall(rf'^    p0b{batch["batch"]}s{layer["step"]}\["(.*)"\]$', chart, re.MULTILINE)
            name, _, kernel, time = box.split("<br/>")
            assert (name, kernel) == (layer["name"], layer["kernel"])
            assert time == f"{layer['measured']:.2f} us, {layer['measured'] / whole:.1%}"
    pytest.importorskip("pygraphviz", reason="SVG is drawn by pygraphviz, which is not installed")
    assert main(["plan", "net.yaml", "--format", "svg", "--batch", "4", "--cache", "cache"]) == ExitCode.OK
    out = capsys.readouterr()
    assert out.err == "planning net for h200\n"
    (batch,) = (each for each in explained["batches"] if each["batch"] == 4)
    titles, texts, tips = read_svg(out.out)
    assert titles == ["net for h200 in fp16, batch 4"]
    for layer in batch["layers"]:
        assert layer["name"] in texts
        assert any(tip.startswith(f"{layer['name']}: {layer['words']}\nkernel: {layer['kernel']}\n") for tip in tips)
    kernels = {layer["kernel"] for layer in batch["layers"]}
    assert all(f"{sum(x['measured'] for x in batch['layers'] if x['kernel'] == k):.2f}" in texts for k in kernels)
    assert main(["plan", "net.yaml", "--format", "svg", "--batch", "4", "--cache", "cache"]) == ExitCode.OK
    assert capsys.readouterr().out == out.out


def test_the_model_as_imported_shows_what_became_of_its_nodes(
    explained: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["graph", "net.yaml", "--stage", "imported", "--format", "mermaid", "--cache", "cache"]) == ExitCode.OK
    boxes = re.findall(r'^    g0n\d+\["(.*)"\]$', capsys.readouterr().out, re.MULTILINE)
    steps = {name: layer for layer in explained["batches"][0]["layers"] for name in (layer["name"], *layer["nodes"])}
    assert boxes
    for box in boxes:
        name, _, kernel, said = box.split("<br/>")
        layer = steps[name]
        assert kernel == layer["kernel"]
        assert said.startswith(f"{layer['measured']:.2f} us, " if layer["name"] == name else f"in step {layer['name']}")


@pytest.mark.usefixtures("explained")
def test_without_the_library(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    assert main(["plan", "net.yaml", "--format", "svg", "--cache", "cache"]) == ExitCode.TOOL_MISSING
    assert capsys.readouterr().err == (
        "planning net for h200\n"
        "error[missing-tool]: SVG is drawn by pygraphviz, which cannot be imported (import of pygraphviz halted; None"
        " in sys.modules)\n  hint: python -m pip install 'pygraphviz>=2.0', or take --format mermaid\n"
    )


def read_svg(text: str) -> tuple[list[str], list[str], list[str]]:
    """Titles of groups, every text, and every tip, of a picture that loads nothing."""
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    links = list(root.iter(f"{space}a"))
    assert not any("href" in name for each in root.iter() for name in each.attrib)
    groups = [each for each in root.iter(f"{space}g") if each.get("class") == "cluster"]
    titles = [each.findtext(f"{space}text", "") for each in groups]
    tips = [each.get("{http://www.w3.org/1999/xlink}title", "") for each in links]
    return titles, ["".join(each.itertext()) for each in root.iter(f"{space}text")], tips

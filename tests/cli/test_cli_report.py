"""`bolt-build report`: the page says what `explain` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from html_pages import read_page
from locked_net import new_net, whole_engine, written_plan

from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.report.pages.arena import live_bytes


def test_a_tuned_engine_that_was_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Layers, times and runners-up are those of `explain`; the arena is that of the plan."""
    monkeypatch.chdir(tmp_path)
    net = new_net()
    net.lock(whole_engine(net.tuned()))
    plan = written_plan(net.plan())
    capsys.readouterr()
    assert main(["explain", "net.yaml", "--format", "json", "--cache", "cache"]) == ExitCode.OK
    (explained,) = json.loads(capsys.readouterr().out)
    assert main(["report", "net.yaml", "--cache", "cache"]) == ExitCode.OK
    text = Path("net.html").read_text()
    page = read_page(text)
    assert "Sizes and errors are not here: generated/net/h200" in text
    assert "whole engine of batch 1: 50.0 us with the kernels that are fastest alone" in text
    assert page.facts["measured on"] == "NVIDIA H200"
    for batch, steps in zip(explained["batches"], plan.plans, strict=True):
        title = f"net for h200, batch {batch['batch']}"
        rows = page.rows(f"Layers of {title}")
        assert [(row["layer"], row["kernel"], row["us"], row["how"]) for row in rows] == [
            (each["name"], each["kernel"], f"{each['measured']:.2f}", "measured") for each in batch["layers"]
        ]
        roofs, whole = [each["roofline"] for each in batch["layers"]], batch["totals"]["time"]
        assert [row["bound / us"] for row in rows] == [f"{roof['share']:.1%}" for roof in roofs]
        assert [row["bound by"] for row in rows] == [roof["by"] for roof in roofs]
        shares = [f"{each['measured'] / whole:.1%}" for each in batch["layers"]]
        assert [row["share of the time"] for row in rows] == shares
        (line,) = [row for row in page.rows("Every engine and batch") if row["engine"] == title]
        assert (line["sum of kernels, us"], line["verification"]) == (f"{whole:.2f}", "not built")
        kernels = {each["kernel"] for each in batch["layers"]}
        counts = {row["kernel"]: int(row["steps"]) for row in page.rows(f"Kernels of {title}")}
        assert counts == {k: sum(each["kernel"] == k for each in batch["layers"]) for k in kernels}
        # Each step is pointed at in the strip and in the roofline, with the same numbers.
        for layer, share in zip(batch["layers"], shares, strict=True):
            said = f"step {layer['step']}: {layer['name']}: {layer['measured']:.2f} us measured, {share} of the time"
            assert sum(text.startswith(said) and layer["kernel"] in text for text in page.titles) >= 2
        layers = {each["digest"]: each for each in batch["layers"]}
        others = [each["runner_up"] for each in layers.values()]
        assert [(row["runner-up"], row["margin"]) for row in page.rows(f"Tuning of {title}")] == [
            ("none", "") if other is None else (other["kernel"], f"{other['margin']:+.1%}") for other in others
        ]
        live = live_bytes(steps)
        assert max(live) == steps.live_peak <= steps.arena_bytes
        assert [row["bytes"] for row in page.rows(f"Arena of {title}")] == list(map(str, live))


def test_a_place_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text("bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\n")
    assert main(["report", "net.yaml", "--out", "gone/r.html"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        f"gone/r.html: error[no-place]: its directory does not exist\n  hint: make it with: mkdir -p {tmp_path}/gone\n"
    )

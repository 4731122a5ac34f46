"""Tables of steps by kind, and of convolutions beside cuDNN: what a step is called, and how the rows add up."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from gpu_averages import LAYERS, step_of

from benchmarks.peers import cudnn_convolutions as beside
from benchmarks.planning import roofline_by_kind as kinds
from benchmarks.planning.step_kinds import kind_of, members
from bolt_build.graph.ops.products.conv import Conv


def test_a_step_is_called_after_what_computes_in_it() -> None:
    _, step = step_of(LAYERS[0])
    assert kind_of(step.problem) == "depthwise 3x3 conv + reduce"
    (first, types), (mean, read) = members(step.problem)
    assert isinstance(first, Conv)
    assert [each.shape for each in types[:2]] == [(3, 96, 30, 29), (96, 1, 3, 3)]
    assert mean.kind == "reduce"
    assert [each.shape for each in read] == [(3, 96, 30, 29)]


def test_a_bound_is_what_takes_longest() -> None:
    _, step = step_of(LAYERS[0])
    assert kinds.bound_us(step.problem) == 2.0  # a launch: 0.1 us of bytes, and fewer operations
    assert kinds.Timed("a", "conv", "k", 8.0, 2.0, True).share == 0.25


def test_kinds_are_added_up_what_takes_longest_first() -> None:
    steps = [kinds.Timed("a", "pool", "k", 4.0, 2.0, True), kinds.Timed("b", "conv", "k", 10.0, 5.0, True),
             kinds.Timed("c", "conv", "k", 6.0, 3.0, False)]  # fmt: skip
    assert kinds.by_kind(steps) == [
        {"kind": "conv", "steps": 2, "us": 16.0, "part": 0.8, "share": 0.5, "measured": 1},
        {"kind": "pool", "steps": 1, "us": 4.0, "part": 0.2, "share": 0.5, "measured": 1},
    ]


def test_a_convolution_is_named_by_all_that_cudnn_is_asked_for() -> None:
    op = Conv((2, 1), (1, 0), (0, 2), (1, 3), groups=4)
    assert beside.convolution_text(op, (8, 16, 30, 20), (32, 4, 3, 5)) == (
        "8x30x20x16 32x3x5x4 strides 2,1 pads 1,0,0,2 dilations 1,3 groups 4"
    )


def test_a_table_has_each_step_once_and_sums_of_whole_engines(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"step": "a", "kind": "3x3 conv", "kernel": "k", "convolutions": ["x"], "us": 4.0, "cudnn_us": [8.0],
         "steps": 3},
        {"step": "b", "kind": "two", "kernel": "k", "convolutions": ["x", "y"], "us": 8.0, "cudnn_us": [2.0, 2.0],
         "steps": 1},
    ]  # fmt: skip
    head = {"device": "cpu", "date": "2026-01-01", "command": "c", "python": "3", "versions": {}, "gpu": "G",
            "cudnn": 91900, "plans": 10}  # fmt: skip
    for name in ("mobilenet_v2_b32", "mobilenet_v2_b1"):
        (tmp_path / f"convolutions_{name}.json").write_text(json.dumps({"environment": head, "steps": steps}))
    out = tmp_path / "out.json"
    rows = ["mobilenet_v2_b32", "mobilenet_v2_b1"]
    assert beside.close(Namespace(folder=tmp_path, rows=rows, out=out)) == 0
    made = json.loads(out.read_text())
    assert made["rows_missing"] == []
    every = {"geometric_mean": 1.0, "least": 0.5, "least_row": "mobilenet_v2 b_b1", "rows": 2}
    single = {"geometric_mean": 2.0, "least": 2.0, "least_row": "mobilenet_v2 a_b1", "rows": 1}
    assert made["summary"]["b1"] == {"all": every, "single": single, "us": 20.0, "cudnn_us": 28.0}
    assert beside.close(Namespace(folder=tmp_path, rows=[*rows, "resnet50_b1"], out=out)) == 1
    assert json.loads(out.read_text())["rows_missing"] == ["resnet50_b1"]

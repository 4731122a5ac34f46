"""What a recipe says of layers that the engine does not have: a build says so where it plans."""

from __future__ import annotations

from pathlib import Path

import pytest
from locked_net import RECIPE, Net, new_net

from bolt_build.report.diagnostics import render

LAYERS = """\
layers:
  "conv2": {tolerance: 0.1}
  "relu?": {precision: fp32}
  "convs*": {persistent: never}
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.chdir(tmp_path)
    return new_net()


def test_a_glob_that_matches_nothing_is_said_and_what_is_part_of_another_node_matches(net: Net) -> None:
    """A ReLU in the epilogue of a convolution is a node of the model still, and so is the convolution."""
    Path("net.yaml").write_text(RECIPE + LAYERS)
    assert render(net.plan().warnings, color=False) == (
        "net.yaml:8:3: warning[no-such-layer]: 'convs*' matches no layer of the engine for h200\n"
        '  8 |   "convs*": {persistent: never}\n'
        "    |   ^^^^^^^^ did you mean 'conv2'?\n"
    )


def test_it_is_said_where_it_is_planned_and_not_of_what_is_there(net: Net) -> None:
    Path("net.yaml").write_text(RECIPE + LAYERS)
    assert len(net.plan().warnings) == 1
    assert net.plan().warnings == ()

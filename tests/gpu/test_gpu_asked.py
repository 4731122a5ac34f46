"""Trials are made of those layers alone that labels can be of."""

from __future__ import annotations

from families_harness import Input, Layer
from gpu_asked import asked, asked_for

from bolt_build.graph.ops.lines.softmax import Softmax

LAYERS = [Layer(label, Softmax(1), (Input((2, 3)),)) for label in ("rows", "rows-odd", "planes")]


def labels() -> list[str]:
    return [layer.label for layer in asked(LAYERS)]


def test_a_label_is_of_the_layers_that_it_begins_with_or_that_begin_with_it() -> None:
    with asked_for(["rows-odd-portable-direct"]):
        assert labels() == ["rows", "rows-odd"]
    with asked_for(["pla"]):
        assert labels() == ["planes"]
    with asked_for(["plane-"]):
        assert labels() == []


def test_all_layers_are_asked_for_where_nothing_is_said() -> None:
    with asked_for(["planes"]):
        pass
    assert labels() == ["rows", "rows-odd", "planes"]

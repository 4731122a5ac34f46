"""Engines of drawn graphs, whose kernels are any of those that are offered, compute what the graphs say.

Each kernel is tested by itself elsewhere. Here operators that are drawn give it shapes, operands and neighbours, and
many graphs are one engine: they share nothing but its compilation.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from any_kernel import AnyKernel
from drawn_graphs import drawn
from kept_meaning import CLOSE, differs
from test_planner_meaning import MORE, QUANTISED, STEP

from benchmarks.correctness.merged_engine import Workshop, merged, outputs_of
from bolt_build.families import load
from bolt_build.graph.reference import evaluate
from bolt_build.targets import HOST

SEED = 7


def engine_says(folder: Path, first: int, count: int, close: float, quantised: bool = False) -> list[str]:
    """What is wrong of these graphs in one engine of the host's."""
    shop = Workshop(folder, [AnyKernel(family, SEED) for family in load(HOST)])
    graphs, given, wrong = [], [], []
    for seed in range(first, first + count):
        growing = drawn(Random(seed).randrange, QUANTISED if quantised else MORE)
        made = growing.finish()
        if made is not None:
            graphs.append(made)
            given.append(growing.fed())
    place = shop.built(merged(graphs), "engine")
    found = outputs_of(place, {f"{at}/{name}": x for at, arrays in enumerate(given) for name, x in arrays.items()})
    for at, (graph, arrays) in enumerate(zip(graphs, given, strict=True)):
        with np.errstate(all="ignore"):
            known = evaluate(graph, arrays)
        wrong += [
            f"graph {at}: '{name}' {how}"
            for name in graph.outputs
            if (how := differs(found[f"{at}/{name}"], known[name], close)) is not None
        ]
    return wrong


@pytest.mark.large
@pytest.mark.parametrize(("quantised", "close"), [(False, CLOSE), (True, STEP)], ids=["floats", "integers"])
def test_hosts_compute_what_drawn_graphs_say(tmp_path: Path, quantised: bool, close: float) -> None:
    assert engine_says(tmp_path, 500, 80, close, quantised) == []

"""What the scripts that time encoders, and steps that only move bytes, begin with: recipes, models, offered peers."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import pytest

from bolt_build.families.base import Candidate
from bolt_build.graph import zoo
from bolt_build.graph.onnx_import import load_model
from bolt_build.planner.engine_plan import Step
from bolt_build.schema.load import load_recipe

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_has_a_recipe_with_its_batch_and_half_precision_at_inputs_and_outputs(tmp_path: Path) -> None:
    from benchmarks.peers.encoder_peers import ROWS, given_types
    from benchmarks.peers.peer_rows import locked_recipe

    given = Namespace(folder=tmp_path, target="h200")
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        recipe = load_recipe(locked_recipe(given, ROWS, row.model, given_types(row.model)))
        (spec,) = [spec for spec in recipe.targets if spec.name == "h200"]
        assert row.batch in recipe.batches(spec)
        assert recipe.engine.io.dtype == "fp16"
        assert recipe.model.zoo in zoo.names()


def test_peers_are_offered_as_a_package_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.peers.encoder_peers import PEERS
    from benchmarks.peers.peer_rows import offer_peers

    monkeypatch.setenv("PYTHONPATH", "before")
    offer_peers(tmp_path, "published_encoders", PEERS)
    (points,) = tmp_path.rglob("entry_points.txt")
    lines = points.read_text().splitlines()
    assert lines[0] == "[bolt_build.peers]"
    assert lines[1:] == [
        f"{name} = benchmarks.peers.published_encoders:{attribute}" for name, attribute in PEERS.items()
    ]
    source = (ROOT / "benchmarks" / "peers" / "published_encoders.py").read_text()
    for name, attribute in PEERS.items():
        assert f'\n{attribute} = Published("{name}",' in source


def test_every_case_of_the_bandwidth_table_is_a_layer(tmp_path: Path) -> None:
    from benchmarks.kernels.bandwidth_cases import SETS

    for name, engines in SETS.items():
        onnx.save(engines.model(), tmp_path / f"{name}.onnx")
        graph = load_model(tmp_path / f"{name}.onnx").bind(2, ())
        assert {node.name.partition("/")[0] for node in graph.nodes} == {case.name for case in engines.cases}


def test_the_bandwidth_table_takes_cases_that_were_measured_with_the_kernels_of_now() -> None:
    from benchmarks.kernels.bandwidth import joined
    from benchmarks.planning.problem_texts import text_of

    def kernel(name: str) -> Candidate:
        return Candidate("portable", (("algorithm", name),))

    def row(case: str, name: str, us: float) -> dict[str, Any]:
        problem, candidate = f"problem of {case}", text_of(kernel(name))
        return {"case": case, "batch": 32, "problem": problem, "candidate": candidate, "us": us}

    now = [row("both", "new", 1.0), row("slower", "new", 2.0), row("neither", "new", 3.0)]
    before = [row("both", "old", 4.0), row("slower", "old", 5.0), row("neither", "older", 6.0), row("kept", "old", 7.0)]
    chosen = {"both": "new", "slower": "old", "neither": "third", "kept": "old"}
    steps = {f"problem of {case}": cast(Step, SimpleNamespace(candidate=kernel(name))) for case, name in chosen.items()}
    assert joined(now, before, steps) == [
        row("both", "new", 1.0), row("slower", "old", 5.0), row("neither", "new", 3.0) | {"other_kernel": True},
        row("kept", "old", 7.0),
    ]  # fmt: skip

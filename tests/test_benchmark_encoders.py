"""What the scripts that time encoders, and steps that only move bytes, begin with: recipes, models, offered peers."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import onnx
import pytest

from bolt_build.graph import zoo
from bolt_build.graph.onnx_import import load_model
from bolt_build.schema.load import load_recipe

ROOT = Path(__file__).resolve().parents[1]


def test_every_row_has_a_recipe_with_its_batch_and_half_precision_at_the_border(tmp_path: Path) -> None:
    from benchmarks.peers.encoder_peers import ROWS, border
    from benchmarks.peers.peer_rows import locked_recipe

    given = Namespace(folder=tmp_path, target="h200")
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        recipe = load_recipe(locked_recipe(given, ROWS, row.model, border(row.model)))
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

"""Models of whatever operators: the importer, all passes and whole plans keep what onnxruntime makes of them.
`benchmarks/correctness/mixed_models.py` asks the same of many more, and of engines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from mixed_checks import every_stage_keeps_the_numbers, plans_for_a_gpu_keep_the_numbers
from mixed_models import mixed_model

SEEDS = range(24)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.large] if seed % 3 else []) for seed in SEEDS])
def test_every_stage_keeps_the_numbers(seed: int, tmp_path: Path) -> None:
    every_stage_keeps_the_numbers(mixed_model(seed), seed, tmp_path)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(name, seed, marks=[] if seed % often == 0 else [pytest.mark.large])
        for name, often in (("h200", 12), ("t4", 24))
        for seed in SEEDS[::3]
    ],
)
def test_plans_for_gpus_keep_the_numbers(seed: int, name: str, tmp_path: Path) -> None:
    plans_for_a_gpu_keep_the_numbers(mixed_model(seed), name, tmp_path)


def test_the_seeds_have_most_operators_and_kinds_of_tensors() -> None:
    mixed = [mixed_model(seed) for seed in SEEDS]
    operators = Counter(node.op_type for each in mixed for node in each.proto.graph.node)
    kinds = {array.dtype.name for each in mixed for array in (*each.inputs.values(), *each.outputs.values())}
    assert len(operators) >= 80
    assert kinds >= {"float32", "int64", "int32", "bool"}
    assert sum(len(each.known) for each in mixed) >= 0.9 * sum(len(each.outputs) for each in mixed)
    assert mixed_model(SEEDS[0]).proto.SerializeToString() == mixed[0].proto.SerializeToString()

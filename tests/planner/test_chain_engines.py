"""Random models whose products follow each other: engines that compute them in one kernel wherever one can, and engines
that never do, agree with onnxruntime, each by itself."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from chain_recipes import fused, write
from gpu_commands import bolt, target_here
from recipe_projects import Project
from soon_compiled import emitted_soon_compiled

from bolt_build.targets import target_named


@pytest.mark.large
@pytest.mark.parametrize("policy", ["always", "never"])
def test_on_the_host(tmp_path: Path, cache_home: Path, policy: str) -> None:
    write(tmp_path, 1, policy, "host", "fp32")
    with emitted_soon_compiled():
        said = Project(tmp_path, cache_home).bolt("build", f"{policy}.yaml", "--format", "json")
    assert json.loads(said.splitlines()[-1])["targets"][0]["verified"] is True


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.large) for seed in (1, 2, 3))])
def test_both_ways_are_ways(tmp_path: Path, seed: int) -> None:
    assert fused(write(tmp_path, seed, "always", "h200", "fp16")) >= 2
    assert fused(write(tmp_path, seed, "never", "h200", "fp16")) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("policy", ["always", "never"])
@pytest.mark.parametrize("seed", [0, 1, 2, secrets.randbelow(1 << 31)], ids=["0", "1", "2", "fresh"])
def test_on_the_gpu(tmp_path: Path, seed: int, policy: str, precision: str) -> None:
    print(f"seed {seed}")
    target = target_here()
    if precision not in target_named(target).precisions:
        pytest.skip(f"{target} has no {precision}")
    write(tmp_path, seed, policy, target, precision)
    assert bolt(tmp_path, "build", f"{policy}.yaml")["targets"][0]["verified"] is True

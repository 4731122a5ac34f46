"""Recipes of seeded chains, and how many of them a plan fuses."""

from __future__ import annotations

from pathlib import Path

import onnx
from chain_models import CHAINS, random_chains

from bolt_build.build.builder import BuildOptions
from bolt_build.schema.load import load_recipe
from bolt_build.workflows.evidence import gather

RECIPE = """\
bolt: 1
name: {policy}
model: {{onnx: chains.onnx, batch: 3}}
targets: {{{target}: {{precision: {precision}}}}}
policy: {{fusion: {{persistent: {policy}}}}}
tuning: {{lock: null}}
verify: {{samples: 1}}
"""


def write(folder: Path, seed: int, policy: str, target: str, precision: str, chains: int = CHAINS) -> Path:
    onnx.save(random_chains(seed, chains), str(folder / "chains.onnx"))
    recipe = folder / f"{policy}.yaml"
    recipe.write_text(RECIPE.format(policy=policy, target=target, precision=precision))
    return recipe


def fused(recipe_path: Path) -> int:
    """Steps of the engine's plan that compute two nodes."""
    recipe = load_recipe(recipe_path)
    (spec,) = recipe.targets
    options = BuildOptions(output=recipe_path.parent / "generated")
    evidence = gather(recipe, spec, options, lambda text: None)
    return sum(each.fused for each in evidence.engine.chains)

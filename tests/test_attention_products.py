"""Products of attention on Hopper are under way beside each other: the assembler says where it makes them wait, as a
thread's registers do not suffice, or because it cannot see that nothing else uses them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from families_harness import Input, Layer
from gpu_attention_layers import FAMILY, attention, packed, step_of
from gpu_harness import TARGET

from bolt_build import runtime
from bolt_build.families import load
from bolt_build.families.attention.kind import Tile, candidate_of
from bolt_build.families.attention.warpgroup import WarpgroupTile
from bolt_build.families.attention.windows import WindowsTile
from bolt_build.toolchain import probe

OFTEN = {"bert", "gpt", "masked", "windows"}
"""One of each kind of loop: `pytest -m large` compiles the others, of the same loops in other tiles."""
SERIALISED = re.compile(r"\(C751\d\) Potential Performance Loss: wgmma[^'\n]*")
TILES = (
    (packed("bert", 32, 12, 384, 64), WarpgroupTile(2, 128, 2, ahead=False, blocks=2)),
    (packed("vit", 32, 12, 197, 64), WarpgroupTile(2, 112, 2, ahead=False, blocks=2)),
    (packed("small vit", 8, 12, 197, 64), WarpgroupTile(1, 208, 1, ahead=False, blocks=3)),
    (packed("gpt", 8, 12, 256, 64), WarpgroupTile(1, 128, 2, ahead=True, blocks=3)),
    (packed("qwen", 8, 16, 256, 128), WarpgroupTile(2, 64, 2, ahead=False, blocks=2)),
    (
        attention("masked", (32, 12, 384, 384), 64, mask=Input((32, 1, 1, 384))),
        WarpgroupTile(2, 128, 1, ahead=False, blocks=2),
    ),
    (
        attention("computed", (8, 12, 128, 128), 64, mask=Input((8, 12, 128, 128))),
        WarpgroupTile(2, 128, 1, ahead=False, blocks=2),
    ),
    (
        attention("bias", (8, 12, 197, 197), 64, mask=Input((1, 12, 197, 197), True)),
        WarpgroupTile(1, 208, 1, ahead=False, blocks=3),
    ),
    (attention("windows", (2048, 3, 49, 49), 32, mask=Input((64, 3, 49, 49), True)), WindowsTile(64, 5)),
    (attention("plain windows", (2048, 3, 49, 49), 32), WindowsTile(64, 6)),
)


@pytest.mark.parametrize(
    ("layer", "tile"),
    [
        pytest.param(
            layer, tile, id=layer.label.replace(" ", "-"), marks=[] if layer.label in OFTEN else [pytest.mark.large]
        )
        for layer, tile in TILES
    ],
)
def test_products_do_not_wait_for_each_other(layer: Layer, tile: Tile, tmp_path: Path) -> None:
    chain = probe(("nvcc", "cutlass"))
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        pytest.skip(f"needs nvcc and CUTLASS: {[diagnostic.message for diagnostic in chain.diagnostics()]}")
    problem, candidate = step_of(layer).problem, candidate_of(tile)
    assert FAMILY.refuse(problem, candidate, TARGET) is None
    (unit,) = FAMILY.units([(problem, candidate)], TARGET)
    source = tmp_path / unit.name
    source.write_text(unit.text)
    folders = (runtime.include_dir(), Path(cutlass).parent / "include", *(each.include_dir for each in load(TARGET)))
    command = [nvcc, "-std=c++17", *TARGET.compile_flags, *(f"-I{folder}" for folder in folders), "-Xptxas", "-v"]
    done = subprocess.run(
        [*command, "-cubin", source, "-o", tmp_path / "unit.cubin"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]
    assert "registers" in done.stderr
    assert SERIALISED.findall(done.stderr) == []

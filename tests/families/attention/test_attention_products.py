"""Products of attention on Hopper are under way beside each other: the assembler says where it makes them wait, as a
thread's registers do not suffice, or because it cannot see that nothing else uses them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
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


def test_products_of_each_kind_of_loop_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """In one file: half the time of each goes into headers. The assembler names the kernel that it complains about."""
    assert serialised([each for each in TILES if each[0].label in OFTEN], tmp_path) == []


@pytest.mark.large
@pytest.mark.parametrize(
    ("layer", "tile"),
    [pytest.param(*each, id=each[0].label.replace(" ", "-")) for each in TILES if each[0].label not in OFTEN],
)
def test_nor_do_those_of_the_same_loops_in_other_tiles(layer: Layer, tile: Tile, tmp_path: Path) -> None:
    assert serialised([(layer, tile)], tmp_path) == []


def serialised(kernels: Sequence[tuple[Layer, Tile]], folder: Path) -> list[str]:
    """What the assembler says of products that wait in these kernels."""
    chain = probe(("nvcc", "cutlass"))
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        pytest.skip(f"needs nvcc and CUTLASS: {[diagnostic.message for diagnostic in chain.diagnostics()]}")
    steps = [(step_of(layer).problem, candidate_of(tile)) for layer, tile in kernels]
    assert [FAMILY.refuse(*step, TARGET) for step in steps] == [None] * len(steps)
    units = FAMILY.units(steps, TARGET)
    assert len(units) == len(kernels)
    source = folder / "kernels.cu"
    source.write_text("\n".join(unit.text for unit in units))
    folders = (runtime.include_dir(), Path(cutlass).parent / "include", *(each.include_dir for each in load(TARGET)))
    command = [nvcc, "-std=c++17", *TARGET.compile_flags, *(f"-I{folder}" for folder in folders), "-Xptxas", "-v"]
    done = subprocess.run(
        [*command, "-cubin", source, "-o", folder / "kernels.cubin"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stderr.count(" registers") >= len(kernels)
    return SERIALISED.findall(done.stderr)

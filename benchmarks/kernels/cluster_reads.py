"""Long matrix products on WGMMA by blocks alone, and by clusters of two that read once what their tiles have in common.
In fp16 with fp32 accumulation. Every kernel is compared with NumPy, then timed from a replayed graph over buffers that
exceed L2.

    python benchmarks/kernels/cluster_reads.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/cluster_reads.py FOLDER --out FILE    # on an H100 or H200: runs them, compiled or not

FOLDER keeps what was compiled. `BOLT_GPU_TARGET=h100` names the GPU that predictions are of. `gain` is the time of the
fastest tile by blocks alone over that of the fastest in clusters. `read` is what the tiles of 128 x 128 of blocks alone
ask L2 for, in TB in a second.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.family import Cutlass

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer, graph_with
from gpu_norms import product
from gpu_products import GELU

FAMILY, TARGET = Cutlass(), gpu_harness.TARGET
WAYS = ("alone", "clusters")
LAYERS = (
    product("BERT-base 384 b32 projections", (32, 384, 768), 2304, (), by=False),
    product("BERT-base 384 b32 feed-forward 1", (32, 384, 768), 3072, GELU, by=False),
    product("BERT-large 384 b32 feed-forward 1", (32, 384, 1024), 4096, GELU, by=False),
    product("BERT-large 384 b32 feed-forward 2", (32, 384, 4096), 1024, (), by=False),
    product("ViT-B/16 b32 projections", (32, 197, 768), 2304, (), by=False),
    product("ViT-B/16 b32 feed-forward 1", (32, 197, 768), 3072, GELU, by=False),
    product("Llama 1B 8 x 256 feed-forward", (8, 256, 2048), 8192, (), by=False),
)
TILES = ((128, 128, "pingpong"), (256, 128, "cooperative"), (128, 256, "cooperative"))
SQUARE = TILES[0]
CLUSTERS = ("2x1", "1x2")
DEPTH = 64


def trials_of(layer: Layer, clusters: int) -> list[tuple[str, gpu_harness.Trial]]:
    """Each tile by blocks alone and in so many clusters of two."""
    graph, node = graph_with(layer)
    step = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps[0]
    found = []
    for m, n, schedule in TILES:
        tile = (("m", m), ("n", n), ("k", DEPTH), ("warpgroups", schedule))
        together = [("clusters", (("cluster", name),)) for name in CLUSTERS[:clusters]]
        for way, cluster in (("alone", ()), *together):
            candidate = Candidate("cutlass", (*tile, *cluster), ())
            if FAMILY.refuse(step.problem, candidate, TARGET) is None:
                found.append((way, gpu_harness.Trial(layer, step, candidate, timed=True)))
    return found


def asked(layer: Layer) -> float:
    """Bytes that tiles of 128 x 128 ask L2 for: of both factors, a step of the depth after the other."""
    (batch, length, depth), columns = layer.inputs[0].shape, layer.inputs[1].shape[-1]
    m, n, _ = SQUARE
    tiles = -(-batch * length // m) * -(-columns // n)
    return float(tiles * (m + n) * depth * 2)


def predicted(trial: gpu_harness.Trial) -> float:
    """Microseconds."""
    return FAMILY.predict(trial.step.problem, trial.candidate, TARGET) * 1e6


def main() -> int:
    parser = kernel_trials.parser(__doc__, len(CLUSTERS), "clusters of each tile")
    arguments = parser.parse_args()
    planned = [(layer.label, *each) for layer in LAYERS for each in trials_of(layer, arguments.count)]
    library = kernel_trials.library(arguments, [trial for *_, trial in planned])
    if library is None:
        return 0
    rows: dict[str, dict[str, Any]] = kernel_trials.measured_rows(library, planned, WAYS, predicted)
    for layer in LAYERS:
        row = rows[layer.label]
        alone, together = best(row["alone"]), best(row["clusters"])
        square = row["alone"][0]["us"]
        row["gain"] = None if alone is None or together is None else alone / together
        row["read"] = None if square is None else asked(layer) / square / 1e6
    return kernel_trials.finish(
        "cluster_reads", arguments, {"products": rows, "wrong": kernel_trials.wrong(rows, WAYS)}
    )


if __name__ == "__main__":
    sys.exit(main())

"""Scatters that join their updates, statistics over batches and volumes, many of the greatest, sums along long axes,
at sizes of real models: graphs, detectors, mixtures of experts, volumes, speech."""

from __future__ import annotations

from typing import Any

from benchmarks.kernels.bandwidth_graphs import Case, Engines, Make, Net, channel_groups, group_norm
from benchmarks.kernels.bandwidth_odd_cases import plain, reduced


def scattered(axis: int, below: int, updates: tuple[int, ...], reduction: str) -> Make:
    """Each update has an index of its own below `below`."""

    def make(n: Net, case: str, x: str) -> str:
        indices, values = n.indices(case, below, *updates), n.input(case, *updates)
        return n.node(case, "ScatterElements", x, indices, values, axis=axis, reduction=reduction)

    return make


def greatest(count: int, **attributes: Any) -> Make:
    """Both outputs of TopK."""
    return lambda n, case, x: n.node(case, "TopK", x, n.integers(case, count), more=1, **attributes)


def running(axis: int) -> Make:
    return lambda n, case, x: n.node(case, "CumSum", x, n.integers(case, axis))


EDGES = (
    Case("movement", "edges_added", (3000, 64), scattered(1, 3000, (9000, 64), "add")),
    Case("movement", "greatest_of_edges", (3000, 64), scattered(1, 3000, (9000, 64), "max")),
    Case("movement", "tokens_added", (1024, 256), scattered(1, 1024, (512, 256), "add")),
    Case("movement", "least_of_slots", (197, 384), scattered(1, 197, (400, 384), "min")),
    Case("movement", "boxes_added", (8400, 4), scattered(1, 8400, (16800, 4), "add")),
    Case("movement", "words_counted", (32000,), scattered(1, 32000, (8192,), "add")),
    Case("movement", "bins_added", (256, 1000), scattered(2, 1000, (256, 300), "add")),
    Case("movement", "slots_replaced", (1024, 256), scattered(1, 1024, (512, 256), "none")),
)
"""Updates of nodes by their edges, of slots by tokens, and histograms."""
STATISTICS = (
    Case("normalisation", "batch_statistics", (128, 57, 57), plain("MeanVarianceNormalization")),
    Case("normalisation", "batch_statistics_of_rows", (512, 1000), plain("MeanVarianceNormalization", axes=[0, 2])),
    Case("normalisation", "norm_of_volumes", (32, 16, 56, 56), lambda n, c, x: group_norm(n, c, x, 32)),
    Case("normalisation", "groups_of_volumes", (64, 8, 28, 28), lambda n, c, x: channel_groups(n, c, x, 64, 8)),
    Case("reduction", "mean_of_volumes", (64, 16, 28, 28), reduced("ReduceMean", 2, 3, 4)),
    Case("reduction", "mean_of_time", (1500, 512), reduced("ReduceMean", 1)),
    Case("reduction", "lengths_of_channels", (256, 57, 57), reduced("ReduceL2", 1)),
    Case("reduction", "best_of_80", (8400, 80), reduced("ReduceMax", 2)),
    Case("reduction", "best_of_planes", (21, 257, 257), plain("ArgMax", axis=1, keepdims=0)),
    Case("reduction", "running_time", (2000, 80), running(1)),
    Case("reduction", "running_states", (512, 1024), running(1)),
    Case("reduction", "running_128", (64, 57, 128), running(3)),
    Case("reduction", "top_100_of_8400", (80, 8400), greatest(100)),
    Case("reduction", "top_8_of_128", (2048, 128), greatest(8)),
)
"""Statistics, sums and places along axes that images and rows are seldom normalised over."""
LINE_SETS = {
    "edges": Engines(EDGES, batches=(32,), opset=18, layout=""),
    "statistics": Engines(STATISTICS, batches=(32,), opset=21, layout=""),
}

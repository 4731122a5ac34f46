"""How many clusters of blocks a GPU holds at once."""

from __future__ import annotations

from bolt_build.targets import Gpu

_MULTIPROCESSORS = 132
_ALONE = {3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15, 16: 7}
_PAIRED = {3: 79, 4: 62, 5: 47, 6: 39, 7: 32, 8: 30, 16: 14}
"""Clusters of each size that an H200 of so many multiprocessors answers it holds at once
(`cudaOccupancyMaxActiveClusters`), with one block of a multiprocessor and with two. Of more blocks it holds up to a
twelfth more than two say."""


def clusters_at_once(cluster: int, resident: int, gpu: Gpu) -> int:
    """Clusters of so many blocks, where a multiprocessor holds `resident` of these. All blocks of a cluster are of one
    group of multiprocessors (GPC), which they do not fill."""
    if cluster <= 2 or cluster not in _ALONE or gpu.sms != _MULTIPROCESSORS:
        return max(1, gpu.sms * resident // cluster)
    return _ALONE[cluster] if resident == 1 else _PAIRED[cluster] * resident // 2

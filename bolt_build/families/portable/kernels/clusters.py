"""How many clusters of blocks a GPU holds at once."""

from __future__ import annotations

from bolt_build.targets import Gpu

_GROUPS = (18, 18, 18, 16, 16, 16, 16, 14)
"""Multiprocessors of the groups (GPCs) of an H100 or H200, of which each has lost others: a guess. Sixteen clusters of
eight blocks took as long there as if the last one began when others had ended, and so did 64 clusters of four."""


def clusters_at_once(cluster: int, resident: int, gpu: Gpu) -> int:
    """Clusters of so many blocks, where a multiprocessor holds `resident` of these. All blocks of a cluster are of one
    group of multiprocessors, which they do not fill: four groups of 16 and one of 14 are nine clusters of eight."""
    if cluster <= 2 or sum(_GROUPS) != gpu.sms:
        return max(1, gpu.sms * resident // cluster)
    return resident * sum(each // cluster for each in _GROUPS)

"""Facts that Python has beside C++ or beside a result: how many counters a context keeps, and how many clusters of
blocks an H200 holds at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import bolt_build.runtime
from benchmarks import record
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.common.counters import MOST_COUNTERS
from bolt_build.targets import target_named


def test_a_context_keeps_so_many_counters() -> None:
    text = (Path(bolt_build.runtime.__file__).parent / "include/bolt/plan.h").read_text(encoding="utf-8")
    (kib,) = re.findall(r"counter_bytes = (\d+) << 10;", text)
    assert int(kib) * 1024 // 4 == MOST_COUNTERS


def test_clusters_are_as_many_as_an_h200_said() -> None:
    """Of three to eight blocks, with one block a multiprocessor and with two; with more within a twelfth."""
    found = json.loads((record.RESULTS / "cluster_slots.json").read_text(encoding="utf-8"))["clusters"]
    gpu = target_named("h200").gpu
    assert gpu is not None
    for beside, counts in found.items():
        for blocks in range(3, 9):
            said, held = counts[str(blocks)], clusters_at_once(blocks, int(beside), gpu)
            assert held == said if int(beside) <= 2 else abs(held - said) <= said / 12

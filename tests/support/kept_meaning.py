"""Whether passes keep what a graph means: a target's passes one behind the other, with the reference behind each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from planner_fakes import POLICY

from bolt_build.graph import invariants
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.base import Pass
from bolt_build.planner.pipeline import PIPELINE
from bolt_build.targets import target_named

TARGETS = (("host", "fp32"), ("h200", "fp16"), ("t4", "fp16"))
CLOSE = 2e-4
"""Times the largest number of a tensor."""

_SMALL: dict[str, dict[str, Any]] = {
    "images.fold_columns": {"_LEAST": 3, "_LEAST_ALONG": ((3, 1, 1),)},
    "images.fold_lines": {"_LEAST": 3, "_FEW": 1},
    "images.fold_results": {"_FEW": 1, "_CHANNELS": 2},
    "rows.gather_rows": {"_LEAST": 1},
    "recognise.attention_masks": {"MOST_FOLDED": 4},
    "rows.mask_blocks": {"_LEAST_SAVED": 1},
    "rows.masks_apart": {"_GROWTH": 0},
    "images.gathered_pieces": {"_FEWEST": 2, "_WHOLE": 1},
    "images.gathered_windows": {"_FEWEST": 2},
    "rows.multiply_pairs": {"_LOAD": 1},
    "rows.multiply_windows": {"_FILTERS": 2, "_DEPTH": 1, "_DEEP": 20, "_CHANNELS": 2},
    "align.pad_filters": {"_MOST": ((1 << 30, 0),)},
    "align.pad_heads": {"_MOST": 4},
    "align.pad_slices": {"_MOST": 20},
    "rows.narrow_places": {"_LEAST": 1},
    "rows.patches": {"LEAST_WINDOW": 2, "MOST_CHANNELS": 8},
    "tidy.hardmaxes": {"_LEAST": 1},
    "align.split_batches": {"_MOST": 300},
    "rows.split_depths": {"_DEEP": 16, "_PART": 8},
    "align.split_groups": {"_LEAST_WORK": 0, "_LEAST_CHANNELS": 2, "_WHOLE": 2},
    "images.summed_selections": {"_FEWEST": 2},
    "images.volumes": {"MOST_TAPS": 4},
    "rows.wide_heads": {"_WIDEST": 4},
}
"""Thresholds of passes that graphs of few elements would never reach, by module."""


class Changed(AssertionError):
    """A pass changed what a graph means, or broke it."""


@contextmanager
def small_thresholds() -> Iterator[None]:
    """Passes do to small graphs what they do to large ones."""
    with pytest.MonkeyPatch.context() as patched:
        for module, names in _SMALL.items():
            for name, value in names.items():
                patched.setattr(import_module(f"bolt_build.planner.passes.{module}"), name, value)
        yield


def keeps_its_meaning(
    graph: Graph, inputs: Mapping[str, Array], close: float = CLOSE, targets: Sequence[tuple[str, str]] = TARGETS
) -> Counter[str]:
    """How often each pass changed something. Raises Changed, naming the first pass behind which a value that has a name
    of the graph's has other numbers, by more than `close` times the largest."""
    known = evaluate(graph, inputs)
    acted: Counter[str] = Counter()
    done: dict[tuple[str, int], Graph] = {}
    kept = [graph]  # so that nothing else gets their identity
    for name, precision in targets:
        target, now = target_named(name), graph
        for each in PIPELINE:
            if each.pays_on is not None and not each.pays_on(target, precision):
                continue
            key = each.name, id(now)
            if key not in done:
                after = each.run(now, POLICY).graph
                if after is not now:
                    _check(each, now, after, known, inputs, close)
                    acted[each.name] += 1
                done[key] = after
                kept.append(after)
            now = done[key]
    return acted


def _check(
    each: Pass, before: Graph, after: Graph, known: Mapping[str, Array], inputs: Mapping[str, Array], close: float
) -> None:
    try:
        invariants.check(after, before)
    except invariants.InvariantError as error:
        raise Changed(f"{each.name}: {error}") from error
    if (after.inputs, after.outputs) != (before.inputs, before.outputs):
        raise Changed(f"{each.name}: {after.inputs} -> {after.outputs}")
    found = evaluate(after, inputs)
    named = [value.name for value in after.values if not value.synthetic and value.constant is None]
    for name in dict.fromkeys((*named, *after.outputs)):
        if (how := differs(found[name], known[name], close)) is not None:
            raise Changed(f"{each.name}: '{name}' {how}")


def differs(found: Array, wanted: Array, close: float = CLOSE) -> str | None:
    """How two tensors differ, None where they hardly do."""
    if found.shape != wanted.shape:
        return f"is {list(found.shape)}, not {list(wanted.shape)}"
    finite = np.isfinite(wanted)
    if not np.array_equal(found[~finite], wanted[~finite]):
        return "has other infinities"
    wide, apart = wanted[finite].astype(np.float64), found[finite].astype(np.float64) - wanted[finite]
    off = float(np.abs(apart).max(initial=0)) / max(1.0, float(np.abs(wide).max(initial=0)))
    return None if off <= close else f"is off by {off:.1e} of the largest"

"""Recurrences whose steps are functions of numbers: states of vectors, matrices and several numbers."""

from __future__ import annotations

from collections.abc import Sequence

from families_harness import Input, Layer

from bolt_build.graph.ops.elementwise.arithmetic import FUNCTIONS as BINARIES
from bolt_build.graph.ops.recurrent.state_scan import StateScan


def scan(
    extents: Sequence[int],
    reads: Sequence[str],
    terms: Sequence[tuple[object, ...]],
    carried: Sequence[int],
    result: int,
    order: Sequence[int],
    *,
    fold: int = 0,
    backward: Sequence[int] = (),
    begins: dict[int, Sequence[int]] | None = None,
) -> StateScan:
    """`reads` has a letter for each axis of an input: "t" for steps, "a", "b" and "c" for the others of the space, "-"
    for one that stands still."""
    letters = "tabc"[: len(extents)]
    axes = tuple(tuple(read.find(letter) for letter in letters) for read in reads)
    return StateScan(
        tuple(extents), axes,
        tuple(tuple((begins or {}).get(at, (0,) * len(read))) for at, read in enumerate(reads)),
        tuple(at in backward for at in range(len(reads) + 1)),
        tuple(str(term[0]) for term in terms),
        tuple(tuple(int(str(each)) for each in term[1:]) for term in terms),
        tuple(() if term[0] in (*BINARIES, "sum", "where", "greater") else (0.0, 0.0) for term in terms),
        tuple(carried), result, tuple(order), fold,
    )  # fmt: skip


def layer_of(label: str, op: StateScan, shapes: Sequence[tuple[int, ...]], low: float = -1.0) -> Layer:
    return Layer(f"scan-{label}", op, tuple(Input(shape, low=low, high=0.9) for shape in shapes))


FIRST = (("mul", 0, 2), ("add", 3, 1))
"""h' = a h + b, of inputs a, b and h."""
MAMBA = (
    ("mul", 0, 3), ("exp", 5), ("mul", 6, 4), ("mul", 0, 1), ("mul", 8, 2), ("add", 7, 9), ("mul", 10, 2), ("sum", 11),
)  # fmt: skip
"""Of inputs of a step and a channel, of one and a state, weights of a channel and a state, and states."""
DELTA = (
    ("mul", 4, 1), ("sum", 5), ("sub", 2, 6), ("mul", 7, 3), ("mul", 1, 8), ("add", 4, 9), ("mul", 10, 0), ("sum", 11),
)  # fmt: skip
"""Of inputs q, k, v, beta and the state: what the state has for a key is taken from its value."""
FIRES = (
    ("mul", 3, 1), ("add", 5, 0), ("greater", 6, 2), ("sub", 6, 2), ("where", 7, 8, 6), ("max", 4, 6), ("sub", 6, 3),
)  # fmt: skip
"""Of what comes in, what leaks, a threshold and two states: the first loses what reaches the threshold."""


def _mamba(steps: int, states: int) -> Layer:
    op = scan((steps, 37, states), ("ta", "ta", "tb", "ab", "ab"), MAMBA, (10,), 12, (1, 0), fold=2)
    return layer_of(f"mamba-{states}", op, ((steps, 37), (steps, 37), (steps, states), (37, states), (37, states)))


def _delta(keys: int) -> Layer:
    op = scan((8, 3, 10, keys), ("tac", "act", "tab", "ta", "acb"), DELTA, (10,), 12, (1, 0, 2), fold=3)
    return layer_of(f"delta-{keys}", op, ((8, 3, keys), (3, keys, 8), (8, 3, 10), (8, 3), (3, keys, 10)))


SCANS = [
    layer_of("first", scan((13, 3, 5), ("ta", "tab", "ab"), FIRST, (4,), 4, (1, 0, 2)), ((13, 3), (13, 3, 5), (3, 5))),
    layer_of("backward", scan((9, 40, 2), ("atb", "tba", "--"), FIRST, (4,), 4, (0, 2, 1), backward=(0, 1, 3)),
           ((40, 9, 2), (9, 2, 40), (1, 1))),
    layer_of("cut", scan((7, 6, 4), ("atb", "bt", "a"), FIRST, (4,), 3, (2, 1, 0), backward=(1,),
                       begins={0: (0, 2, 1), 1: (3, 0), 2: (1,)}), ((6, 11, 9), (8, 7), (8,))),
    _mamba(6, 16), _mamba(17, 5), _delta(64), _delta(33), _delta(100),
    layer_of("states", scan((21, 70), ("ta", "a", "-", "a", "a"), FIRES, (9, 10), 11, (0, 1)),
           ((21, 70), (70,), (1,), (70,), (70,))),
    layer_of("matrix", scan((5, 4, 6), ("tb", "ta", "ab"), (("mul", 0, 1), ("add", 2, 3), ("sum", 4), ("mul", 4, 5)),
                          (4,), 6, (0, 1, 2), fold=2), ((5, 6), (5, 4), (4, 6))),
]  # fmt: skip

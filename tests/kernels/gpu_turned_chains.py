"""Products in front of depthwise convolutions by bands of matrices (`turned`): windows, strides, odd channels and
extents, rounds of channels, and means of what is left."""

from __future__ import annotations

from dataclasses import replace

from families_layers import RELU
from gpu_asked import asked
from gpu_depthwise_chains import averaged_step, expanded, step_of
from gpu_grouped_layers import FAMILY
from gpu_harness import TARGET, Trial
from gpu_products import GELU, SILU

from bolt_build.families.base import Candidate
from bolt_build.families.common.means import LAST
from bolt_build.families.grouped.means import CLUSTER, SECOND, joined
from bolt_build.families.grouped.neighbours.chain import chain_shape, tiles
from bolt_build.families.grouped.neighbours.turned_tile import TurnedTile
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation

TURNED = [
    expanded("turned-3x3", (3, 24, 14, 14), 40),
    expanded("turned-3x3s2", (2, 16, 30, 30), 72, stride=2, epilogue=SILU),
    expanded("turned-5x5", (2, 40, 13, 13), 56, 5, epilogue=SILU),
    expanded("turned-5x5s2-odd", (2, 19, 21, 37), 50, 5, 2),
    expanded("turned-two-images", (3, 72, 7, 7), 64, 5, epilogue=(RELU,)),
    expanded("turned-wide", (1, 8, 11, 83), 37, epilogue=(RELU,)),
    expanded("turned-no-bias", (2, 72, 9, 11), 64, epilogue=(), bias=False),
    expanded("turned-out-wider", (2, 16, 14, 32), 40, 3, epilogue=GELU, pads=((1, 2), (1, 2))),
    expanded("turned-no-pads", (2, 32, 10, 12), 32, 4, epilogue=(RELU,), pads=((0, 0), (0, 0))),
    expanded("turned-2x2s2", (2, 32, 10, 12), 32, 2, 2, epilogue=(RELU,)),
    expanded("turned-of-zeros", (2, 24, 11, 19), 48, 5, epilogue=(EpilogueOp(Activation("sigmoid")),)),
    expanded("turned-of-a-row", (3, 16, 1, 9), 24, 5, epilogue=(RELU,)),
    expanded("turned-5x5s2-small", (4, 200, 14, 14), 144, 5, 2, epilogue=SILU),
]
ROUNDS = expanded("turned-rounds", (2, 16, 9, 9), 200, epilogue=SILU)
ROUNDS_TILE = TurnedTile(rows=9, columns=9, at_once=5, across=2, parts=1, beside=1)


def turned_trials() -> list[Trial]:
    """Tiles of all extents in turns, with the means of what is left or without; rows apart."""
    found = []
    for place, layer in enumerate(TURNED):
        step = step_of(layer)
        turned = [tile for tile in tiles(chain_shape(step.problem)) if isinstance(tile, TurnedTile)]
        for turn, way in enumerate((None, SECOND, LAST, CLUSTER), 4 * place):
            whole, of = (layer, step) if way is None else averaged_step(layer)
            if not asked([whole]):
                continue
            some = [(tile, joined(Candidate("grouped", tile.parameters), way or SECOND)) for tile in turned]
            some = [each for each in some if FAMILY.refuse(of.problem, each[1], TARGET) is None]
            # Of each extent one, with other products and other blocks in turn.
            extents = dict.fromkeys((tile.rows, tile.columns) for tile, _ in some)
            groups = [[candidate for tile, candidate in some if (tile.rows, tile.columns) == one] for one in extents]
            picked = [group[(7 * number + 3 * turn) % len(group)] for number, group in enumerate(groups)]
            found += [Trial(whole, of, each, launches=2 if way else 1) for each in picked[:: 1 if way is None else 3]]
    found += _rounds()
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in (*found[:1], *found[-1:])]


def _rounds() -> list[Trial]:
    """Warps that go on to other channels, of which the last ones have no more, and take turns at them."""
    (step, (whole, of)) = (step_of(ROUNDS), averaged_step(ROUNDS))
    if not asked([ROUNDS, whole]):
        return []
    some = Candidate("grouped", ROUNDS_TILE.parameters)
    return [Trial(ROUNDS, step, some), Trial(whole, of, joined(some, LAST), launches=2)]

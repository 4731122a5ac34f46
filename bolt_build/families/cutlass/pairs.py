"""Two products in one kernel: which problems can be, with which kernels, and the C++ of them."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.families.base import Candidate, Expense, KernelProblem, Refusal, StepCode, StepExpressions
from bolt_build.families.chains import parts
from bolt_build.families.cutlass import conv, matmul, resident_pairs
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import epilogue_type, epilogue_value, residual
from bolt_build.families.cutlass.expense import expense as product_expense
from bolt_build.families.cutlass.pair_tiles import (
    Pair,
    PairTile,
    WarpgroupPairTile,
    WarpPairTile,
    refuse,
    seconds,
    warp_tiles,
    warpgroup_tiles,
)
from bolt_build.families.cutlass.product import ALIGNMENT, Product, work
from bolt_build.families.cutlass.resident import packed
from bolt_build.families.cutlass.resident_pairs import ResidentPairTile
from bolt_build.families.cutlass.tiles import Tile
from bolt_build.families.cutlass.warpgroups import WarpgroupTile, refuse_product
from bolt_build.families.problems import op_operands
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.targets import Gpu, Target

_SPACE = "bolt::cutlass_kernels"
_FAMILY = "cutlass"


def pair_of(problem: KernelProblem) -> Pair:
    """Both products of a chained problem that `refuse_pair` does not refuse."""
    first, second = map(_product, parts(problem))
    # What lies between is never stored, so it needs no copy with padded rows.
    return Pair(first, replace(second, widen=None))


def _product(problem: KernelProblem) -> Product:
    return conv.product_of(problem, whole_rows=True) if isinstance(problem.op, Conv) else matmul.product_of(problem)


def refuse_pair(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes a chained problem, whatever its tile."""
    first, second = parts(problem)
    if type(first.op) is not type(second.op) or not isinstance(first.op, Conv | MatMul):
        return f"{second.op.kind} behind {first.op.kind} does not multiply its rows"
    for place, each in (("first", first), ("second", second)):
        reason = conv.refuse(each) if isinstance(each.op, Conv) else matmul.refuse(each)
        if reason is not None:
            return f"the {place} product: {reason}"
    behind = _product(second)
    if behind.kernel != "Gemm":
        return "the second convolution is not 1x1 with a stride of one, without padding"
    if behind.n % ALIGNMENT:
        return f"stores {ALIGNMENT} columns at once, {behind.n} is no multiple"
    if any(isinstance(stage.op, Activation) and stage.op.function == "reciprocal" for stage in first.epilogue):
        return "the zeros that pad rows of the first product have no reciprocal"
    return None


def ranked(problem: KernelProblem, target: Target) -> tuple[list[tuple[float, PairTile]], tuple[Refusal, ...]]:
    """Tiles for a chained problem with their predicted seconds, fastest first but that one of each kind of kernel is
    among the first three; and why others are none."""
    if target.gpu is None or target.gpu.instruction("fp16") is None:
        return [], (Refusal(_FAMILY, problem.op.kind, f"target '{target.name}' has no tensor cores"),)
    if (reason := refuse_pair(problem)) is not None:
        return [], (Refusal(_FAMILY, problem.op.kind, reason),)
    pair, gpu = pair_of(problem), target.gpu
    tiles, reasons = _tiles(pair, gpu)
    found: list[tuple[float, PairTile]] = []
    refusals = [Refusal(_FAMILY, problem.op.kind, reason) for reason in reasons]
    for tile in tiles:
        why = refuse(tile, gpu, pair)
        if why is None:
            found.append((_predicted(problem, pair, tile, target), tile))
        else:
            refusals.append(Refusal(_FAMILY, f"tile {tile}", why))
    found.sort(key=lambda each: each[0])
    return _each_kind_first(found), tuple(refusals)


def _tiles(pair: Pair, gpu: Gpu) -> tuple[tuple[PairTile, ...], tuple[str, ...]]:
    """Tiles that may do, and why there are none of a kind."""
    # The first's rows are not stored, the second's are.
    wide = refuse_product(gpu, replace(pair.first, n=pair.second.n))
    found: tuple[PairTile, ...] = () if wide is not None else warpgroup_tiles(pair)
    if wide is None and not found:
        wide = f"whole rows of {pair.first.n} and {pair.second.n} do not fit one tile of an instruction of four warps"
    narrow = warp_tiles(pair, gpu)
    none = [] if wide is None else [wide]
    if not narrow:
        none.append(f"whole rows of {pair.first.n} and {pair.second.n} do not fit one tile of warps")
    kept = resident_pairs.refuse_products(gpu, pair.first, pair.second)
    if kept is not None:
        return (*found, *narrow), (*none, kept)
    return (*found, *narrow, *resident_pairs.tiles(pair.first, pair.second)), tuple(none)


def _each_kind_first(found: list[tuple[float, PairTile]]) -> list[tuple[float, PairTile]]:
    kinds: dict[type[PairTile], int] = {}
    for index, (_, tile) in enumerate(found):
        kinds.setdefault(type(tile), index)
    first = sorted(kinds.values())
    return [*(found[index] for index in first), *(each for at, each in enumerate(found) if at not in first)]


def candidates(problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """The kernels of `ranked`, in their order."""
    found, refusals = ranked(problem, target)
    return tuple(candidate_of(tile) for _, tile in found), refusals


def predict(problem: KernelProblem, candidate: Candidate, target: Target) -> float:
    """Predicted seconds of one of `ranked`."""
    return _predicted(problem, pair_of(problem), tile_of(candidate), target)


def _predicted(problem: KernelProblem, pair: Pair, tile: PairTile, target: Target) -> float:
    """The first product's time with the bytes of both, but for those that are not moved any more."""
    first, second = parts(problem)
    one, other = work(first, pair.first), work(second, pair.second)
    between = 2 * first.outputs[0].nbytes
    needed = replace(one, nbytes=one.nbytes + other.nbytes - between)
    copy = 0.0
    if pair.first.widen is not None:
        moved = first.inputs[0].nbytes + pair.first.widen.nbytes
        copy = moved / target.bandwidth + target.launch_seconds
    return copy + seconds(tile, pair, needed, target)


def expense(problem: KernelProblem) -> Expense:
    """Of both products, without what lies between them."""
    (first, second), pair = parts(problem), pair_of(problem)
    found = [product_expense(first, pair.first), product_expense(second, pair.second)]
    nbytes = sum(each.nbytes for each in found) - 2 * first.outputs[0].nbytes
    why = "; ".join(each.why for each in found if each.why)
    return Expense(nbytes, sum(each.flops for each in found), why, found[0].copied, found[0].copied_as)


def candidate_of(tile: PairTile) -> Candidate:
    """The kernel with the tile."""
    if isinstance(tile, ResidentPairTile):
        return Candidate(_FAMILY, (("rows", tile.rows), ("n1", tile.n1), ("steps", tile.steps), ("resident", "turns")))
    parameters: list[tuple[str, int | str]] = [
        ("m", tile.first.m), ("n", tile.first.n), ("n1", tile.n1), ("k", tile.first.k),
    ]  # fmt: skip
    if isinstance(tile, WarpgroupPairTile):
        parameters.append(("warpgroups", "cooperative" if tile.first.cooperative else "pingpong"))
    else:
        parameters += [("warp_m", tile.first.warp_m), ("warp_n", tile.first.warp_n), ("warp_n1", tile.warp_n1)]
        parameters += [("stages", tile.first.stages), ("through", "shared" if tile.shared else "registers")]
    return Candidate(_FAMILY, tuple(parameters))


def is_pair(candidate: Candidate) -> bool:
    """True where a candidate of this family is for a chained problem."""
    return "n1" in dict(candidate.parameters)


def tile_of(candidate: Candidate) -> PairTile:
    """The tile of a candidate of a chained problem."""
    values = dict(candidate.parameters)
    if "resident" in values:
        rows, steps, n1 = (int(values[name]) for name in ("rows", "steps", "n1"))
        return ResidentPairTile(rows, steps, n1)
    m, n, n1, k = (int(values[name]) for name in ("m", "n", "n1", "k"))
    if "warpgroups" in values:
        return WarpgroupPairTile(WarpgroupTile(m, n, k, values["warpgroups"] == "cooperative"), n1)
    warp_m, warp_n, warp_n1, stages = (int(values[name]) for name in ("warp_m", "warp_n", "warp_n1", "stages"))
    return WarpPairTile(Tile(m, n, k, warp_m, warp_n, stages), n1, warp_n1, values["through"] == "shared")


def cxx_tile(tile: PairTile, pair: Pair, gpu: Gpu) -> str:
    """`bolt::cutlass_kernels::WarpgroupPair<128, 64, 64, 64, false>`"""
    if isinstance(tile, ResidentPairTile):
        return tile.cxx(pair.first)
    first = tile.first
    values: tuple[object, ...]
    if isinstance(tile, WarpgroupPairTile):
        values = (first.m, first.n, tile.n1, first.k, "true" if tile.first.cooperative else "false")
        return f"{_SPACE}::WarpgroupPair<{', '.join(map(str, values))}>"
    instruction = gpu.instruction("fp16")
    assert instruction is not None
    warps = (tile.first.warp_m, tile.first.warp_n, tile.warp_n1, tile.first.stages, "true" if tile.shared else "false")
    values = (first.m, first.n, tile.n1, first.k, *warps, pair.second.access, instruction[2])
    return f"{_SPACE}::Pair<{', '.join(map(str, values))}>"


def emit(problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
    """The C++ of a step that computes both products."""
    (first, second), pair, tile = parts(problem), pair_of(problem), tile_of(candidate)
    gpu = target.gpu
    assert gpu is not None
    own, count = op_operands(problem), len(first.inputs)
    types = (cxx_tile(tile, pair, gpu), epilogue_type(first), epilogue_type(second), pair.first.source)
    member = f"{_SPACE}::Pair{pair.first.kernel}<{', '.join(types)}>"
    ones, others = own[:count], own[count:]
    arguments = (
        pair.first.arguments(()), pair.first.source_value,
        constant(at, ones[1]), _first_weights(tile, pair), constant(at, *ones[2:]), epilogue_value(first),
        str(pair.second.n), constant(at, others[0]), pair.second.weights, constant(at, *others[1:]),
        epilogue_value(second),
    )  # fmt: skip
    added = residual(problem)
    other = "nullptr" if added is None else at.inputs[added]
    call = f"{{member}}.run(r, {at.inputs[0]}, {other}, {at.outputs[0]});"
    return StepCode(("bolt_cutlass/pair.h",), member, ", ".join(arguments), call)


def _first_weights(tile: PairTile, pair: Pair) -> str:
    """How the kernel wants them packed."""
    return packed(pair.first, tile.steps, 1) if isinstance(tile, ResidentPairTile) else pair.first.weights


def unit_text(problem: KernelProblem, candidate: Candidate, target: Target) -> str:
    """The source that instantiates the kernel."""
    (first, second), pair, tile = parts(problem), pair_of(problem), tile_of(candidate)
    gpu = target.gpu
    assert gpu is not None
    kind = pair.first.kernel.lower()
    header = f"{kind}_pair_warpgroup_kernel.h" if of_warpgroups(candidate) else f"{kind}_pair_kernel.h"
    if isinstance(tile, ResidentPairTile):
        header = f"{kind}_resident_pair_kernel.h"
    return (
        f'#include "bolt_cutlass/{header}"\n\n'
        f"template void {_SPACE}::launch_{kind}(\n    {cxx_tile(tile, pair, gpu)},\n"
        f"    const {_SPACE}::{pair.first.kernel}Arguments&, const {_SPACE}::SecondArguments&,\n"
        f"    const {epilogue_type(first)}&,\n    const {epilogue_type(second)}&, void*);\n"
    )


def of_warpgroups(candidate: Candidate) -> bool:
    """True where the kernel uses instructions of four warps."""
    return not {"warpgroups", "resident"}.isdisjoint(dict(candidate.parameters))

"""Kernels on Hopper for a convolution over volumes, which reads depths where they lie, and the normalisation of what it
leaves: those of `volume.py` in tiles of `moment_tiles.py`, with the pass of `normed_images.py` behind them."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.chains import halves
from bolt_build.families.common.text_form import Reader
from bolt_build.families.cutlass.epilogue import EpilogueCode
from bolt_build.families.cutlass.kinds.norms.moment_tiles import (
    MOMENT_BAND_TILES,
    MOMENT_TILES,
    MomentBandTile,
    MomentWgmmaTile,
    Parts,
)
from bolt_build.families.cutlass.kinds.norms.normed_images import normed_step
from bolt_build.families.cutlass.kinds.windows.volume import VolumeProduct, Volumes, VolumeTile, suits
from bolt_build.families.cutlass.problems.image_norm import Applied, refuse
from bolt_build.families.cutlass.settings import DEFAULT
from bolt_build.graph.ops.moves.stack import FoldDepth, Stack, UnfoldDepth
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Gpu, Target


class NormedVolumes(Volumes):
    """The kind of kernels for a stack of depths, the convolution that alone reads it, and the normalisation behind."""

    def serves(self, problem: KernelProblem) -> bool:
        return [type(each.op) for each in problem.op.sequence] == [Stack, FoldDepth, Conv, UnfoldDepth, Norm]

    def read_tile(self, reader: Reader) -> VolumeTile:
        if reader.number("volume") != 1:
            raise ValueError("a tile of volumes says so")
        return VolumeTile(MomentBandTile.read(reader) if reader.has("bands") else MomentWgmmaTile.read(reader))

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        first, norm = halves(problem)
        return super().refuse_problem(first, gpu) or refuse(norm)

    def computed(self, problem: KernelProblem) -> VolumeProduct:
        first, norm = halves(problem)
        found = super().computed(first)
        return replace(found, product=replace(found.product, images=norm.outputs[0].shape[0]))

    def tiles_for(self, what: VolumeProduct, gpu: Gpu) -> tuple[tuple[VolumeTile, ...], str | None]:
        return _TILES, None

    def seconds(self, problem: KernelProblem, what: VolumeProduct, candidate: Candidate, target: Target) -> float:
        first, norm = halves(problem)
        behind = Applied.of(norm, self._parts(what, candidate).most, target).seconds(norm, target)
        return super().seconds(first, what, candidate, target) + behind

    def _parts(self, what: VolumeProduct, candidate: Candidate) -> Parts:
        tile = self.tile_of(candidate).tile
        assert isinstance(tile, MomentWgmmaTile | MomentBandTile), "the kind reads no others"
        return tile.parts(what.product, DEFAULT)

    def epilogue(self, problem: KernelProblem) -> EpilogueCode:
        return super().epilogue(problem).with_moments()

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        first, norm = halves(problem)
        return Expense(first.nbytes + norm.nbytes, first.flops + norm.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return super().reads_apart(halves(problem)[0])

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        first, norm = halves(problem)
        conv = super().emit(first, candidate, target, at)
        return normed_step(first, norm, conv, self._parts(self.computed(problem), candidate), target, at)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        first, _ = halves(problem)
        return super().unit(first, candidate, target)


_TILES = (
    *(VolumeTile(tile) for tile in MOMENT_TILES if suits(tile)),
    *(VolumeTile(tile) for tile in MOMENT_BAND_TILES if suits(tile)),
)

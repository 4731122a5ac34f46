"""Layers of the family of grouped convolutions that many tests ask about, and a tile of each of its kinds."""

from __future__ import annotations

from gpu_products import conv

from bolt_build.families.grouped.kinds.banded import BandedTile
from bolt_build.families.grouped.kinds.deep import DeepTile
from bolt_build.families.grouped.kinds.depthwise import DepthwiseTile
from bolt_build.families.grouped.kinds.diagonal import DiagonalTile
from bolt_build.families.grouped.kinds.rows import RowsTile
from bolt_build.families.grouped.kinds.sliding import SlidingTile
from bolt_build.families.grouped.kinds.tensor_core import TensorCoreTile

DEPTHWISE = conv("depthwise", (32, 96, 56, 56), 96, (3, 3), groups=96)
GROUPED = conv("grouped", (32, 128, 56, 56), 128, (3, 3), groups=32)
TILE = DepthwiseTile(8, 12, 8, 8, 4, held=True)
PRODUCTS = TensorCoreTile(8, 8, 8, 4, 2, 4, 1, held=True)
ROWS = RowsTile(4, 24, 28, 4, 14, 4)
DIAGONAL = DiagonalTile(4, 2, 14)
BANDED = BandedTile(8, 7, 2, 14)
SLIDING = SlidingTile(4, 12, 7, 8, 14, 1, 1)
LINE = conv("line", (8, 768, 99), 768, (128,), pads=((64,), (64,)), groups=16)
DEEP = DeepTile(2, 1, 100, 2, 4, 6, 2, 3)
SEVENS = conv("sevens", (32, 96, 56, 56), 96, (7, 7), groups=96)

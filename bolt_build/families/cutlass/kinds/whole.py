"""What tiles of one product have in common whose kernels leave a choice out: `ProductTile` with less to say."""

from __future__ import annotations

from typing import ClassVar

from bolt_build.families.cutlass.problems.product import Product
from bolt_build.families.cutlass.settings import DEFAULT, Settings
from bolt_build.targets import Gpu


class WholeTile:
    """Of kernels that compute whole products alone; `refuse_slices` says why."""

    reads_images: ClassVar[bool] = False

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        """None: it is for whole products."""
        return None

    def counts(self, gpu: Gpu, product: Product) -> tuple[int, ...]:
        return ()


class OneOrderTile:
    """Of kernels whose blocks take tiles in the order that they have."""

    def usual(self, product: Product, gpu: Gpu) -> Settings:
        return DEFAULT

    def orders(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        return ()

    def allowed(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        return (DEFAULT,)

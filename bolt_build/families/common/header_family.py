"""Families of kernels that are headers alone: what is the same of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from bolt_build.families.base import KernelProblem, TensorFormat
from bolt_build.targets import Target


class HeaderFamily:
    """What `Family` asks for, of one whose headers lie in `folder`/include, and that rewrites no formats."""

    folder: ClassVar[Path]

    @property
    def include_dir(self) -> Path:
        return self.folder / "include"

    @property
    def sources(self) -> tuple[Path, ...]:
        return ()

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        """None: these kernels compute what their family is for."""
        return None

"""The shapes of a padded run: of inputs that are smaller than the plan's, and of what comes back cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bolt_build.runtime.engine_tensors import Array, TensorSpec, require_names
from bolt_build.sizes import Sizes


@dataclass(frozen=True)
class Shorter:
    """The ports of a plan, and what `Engine.follows` says of each: inputs, then outputs."""

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    follows: Sequence[tuple[int, ...]]

    def numbers(self, inputs: Mapping[str, Array], sizes: Sizes) -> list[int]:
        """The batch and extents that the inputs have: those of the plan where no axis says another one."""
        require_names(inputs)
        numbers = list(sizes.numbers)
        for port, follows in zip(self.inputs, self.follows, strict=False):
            shape = getattr(inputs.get(port.name), "shape", ())
            for which, extent in zip(follows, shape, strict=False):
                if which >= 0 and extent < numbers[which]:
                    numbers[which] = int(extent)
        return numbers

    def resized(self, numbers: Sequence[int]) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Inputs and outputs where the batch and extents are these."""
        ports = (*self.inputs, *self.outputs)
        found = [self._resized(port, follows, numbers) for port, follows in zip(ports, self.follows, strict=True)]
        return found[: len(self.inputs)], found[len(self.inputs) :]

    def _resized(self, port: TensorSpec, follows: tuple[int, ...], numbers: Sequence[int]) -> TensorSpec:
        axes = zip(follows or (-1,) * len(port.shape), port.shape, strict=False)
        return port.resized(tuple(extent if which < 0 else numbers[which] for which, extent in axes))

"""The kernels that every run of the tests tries on the emulated GPU, in one library: of a few kernels by themselves
most of the compiler's time would go into headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import emulated
from emulated_draws import image_norms, means, product_means, swished, windows_that_slide
from emulated_labels import IN_BF16, LABELS, OFTEN
from gpu_bf16 import in_bf16
from gpu_harness import Library, Trial
from gpu_layers import small_trials
from shared_folders import SharedFolder

DRAWN: dict[Callable[[int], Trial], int] = {
    windows_that_slide: 1,
    means: 3,
    product_means: 1,
    swished: 1,
    image_norms: 2,
}
"""How many of which draws stand behind the kernels that have labels; the longer run has those that follow."""


def chosen(labels: Sequence[str], in_bf16_too: Sequence[str]) -> list[Trial]:
    """Trials by how their labels begin; and the same in bf16 of others."""
    known = small_trials(OFTEN if labels is LABELS else (*labels, *in_bf16_too))
    found = [
        next(trial for name, trial in known.items() if name.startswith(label)) for label in (*labels, *in_bf16_too)
    ]
    return found[: len(labels)] + [in_bf16(trial) for trial in found[len(labels) :]]


def of_every_run(shared_folder: SharedFolder) -> Library:
    """Compiled once a run: what has labels, and what is drawn from `first_of` on."""

    def trials() -> list[Trial]:
        return [*chosen(LABELS, IN_BF16), *(drawn(seed) for drawn, many in DRAWN.items() for seed in range(many))]

    return emulated.kernel_library("emulated-kernels", trials, shared_folder, emulated.SOON_COMPILED)


def first_of(drawn: Callable[[int], Trial]) -> int:
    """The place of its first draw in the library."""
    before = list(DRAWN)[: list(DRAWN).index(drawn)]
    return len(LABELS) + len(IN_BF16) + sum(DRAWN[each] for each in before)


def further(drawn: Callable[[int], Trial], until: int, name: str, shared_folder: SharedFolder) -> Library:
    """The draws of the longer run: kernels as engines have them."""
    seeds = range(DRAWN[drawn], until)
    return emulated.kernel_library(name, lambda: [drawn(seed) for seed in seeds], shared_folder)

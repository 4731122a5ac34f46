"""Seeded input data, for calibration and for verification: like the images that a network expects, not white noise.

Deep features of white noise hardly differ from one input to the next, for they average over all of it. So half of
the energy lies in a coarse random pattern that differs from sample to sample, and half in pixel noise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

COARSE = 8
"""Cells along each spatial axis of the coarse pattern."""


def sample(shape: tuple[int, ...], *seed: int) -> npt.NDArray[np.float32]:
    """An f32 array of `shape`, mean 0 and variance 1: images [N,C,*spatial] from rank 4, plain noise below."""
    random = np.random.RandomState(list(seed))
    noise = random.standard_normal(shape)
    if len(shape) < 4:
        return np.asarray(noise, np.float32)
    cells = tuple(min(COARSE, extent) for extent in shape[2:])
    pattern = random.standard_normal((*shape[:2], *cells))
    for axis, (extent, count) in enumerate(zip(shape[2:], cells, strict=True), start=2):
        pattern = np.take(pattern, np.arange(extent) * count // extent, axis)
    image: npt.NDArray[np.float64] = (noise + pattern) * np.sqrt(0.5)
    return image.astype(np.float32)

"""Where steps read the image: every tap and run of channels of a window once, in the order of the weights."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from compiled_headers import library_of
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.families import load
from bolt_build.targets import target_named

_CUDA = "#pragma once\n#define __host__\n#define __device__\n"
_PROGRAM = """\
#include <initializer_list>

#include "bolt_cutlass/warpgroups/window_steps.h"
extern "C" void steps(const int* of, int row, int slice, int count, int* found) {
  const bolt::cutlass_kernels::WindowShape shape{of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7], of[8], of[9]};
  bolt::cutlass_kernels::WindowStep step(shape, row, slice, count);
  for (int i = 0; i < count; ++i, step.next(shape))
    for (const int value : {step.image, step.w, step.h, step.run, step.tap, step.tap_w, step.tap_h}) *found++ = value;
}
"""


@dataclass(frozen=True)
class Windows:
    """Two-dimensional windows: sizes as (along the height, along the width)."""

    runs: int
    kernel: tuple[int, int]
    out: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]

    @property
    def steps(self) -> int:
        return self.runs * self.kernel[0] * self.kernel[1]

    @property
    def fields(self) -> tuple[int, ...]:
        """The members of `WindowShape`; a dilation only scales what a step says of its tap."""
        return (self.runs, self.kernel[1], 1, 1, *self.stride[::-1], *self.pad[::-1], *self.out[::-1])

    def read(self, row: int) -> Iterator[tuple[int, ...]]:
        """Of the window of an output position, row by row over all images: what each step reads."""
        position, w = divmod(row, self.out[1])
        image, h = divmod(position, self.out[0])
        corner = (w * self.stride[1] - self.pad[1], h * self.stride[0] - self.pad[0])
        for tap, (tap_h, tap_w) in enumerate(product(range(self.kernel[0]), range(self.kernel[1]))):
            for run in range(self.runs):
                yield (image, *corner, run, tap, tap_w, tap_h)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    (family,) = [family for family in load(target_named("h200")) if family.name == "cutlass"]
    return library_of(tmp_path_factory.mktemp("steps"), _PROGRAM, (family.include_dir,), cuda=_CUDA)


def found(library: ctypes.CDLL, windows: Windows, row: int, slices: int) -> list[tuple[int, ...]]:
    """What the steps of all slices read for the window of `row`."""
    count = windows.steps // slices
    of, values = (ctypes.c_int * 10)(*windows.fields), (ctypes.c_int * (7 * count))()
    read = []
    for part in range(slices):
        library.steps(of, row, part, count, values)
        read += [tuple(values[7 * step : 7 * step + 7]) for step in range(count)]
    return read


PAIRS = st.tuples(st.integers(1, 5), st.integers(1, 5))


@given(
    windows=st.builds(Windows, st.integers(1, 4), PAIRS, PAIRS, PAIRS, st.tuples(st.integers(0, 3), st.integers(0, 3))),
    row=st.integers(0, 100),
    data=st.data(),
)
def test_slices_together_read_whole_windows(
    library: ctypes.CDLL, windows: Windows, row: int, data: st.DataObject
) -> None:
    slices = data.draw(st.sampled_from([n for n in range(1, windows.steps + 1) if windows.steps % n == 0]))
    assert found(library, windows, row, slices) == list(windows.read(row))


def test_a_window_over_the_edge_begins_in_the_padding(library: ctypes.CDLL) -> None:
    windows = Windows(runs=1, kernel=(3, 3), out=(14, 14), stride=(2, 2), pad=(1, 1))
    second_image = 14 * 14 + 14 * 3
    image, w, h, *_ = found(library, windows, second_image, 1)[0]
    assert (image, w, h) == (1, -1, 5)

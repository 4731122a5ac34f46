"""Every kernel of the CUDA families agrees with NumPy on a GPU, between guards, with every sharing of memory.

BOLT_GPU_TRIALS may name a folder that keeps what was compiled, so that another machine can compile most of it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_harness import Library, compiled
from gpu_layers import trials

pytestmark = pytest.mark.gpu

TRIALS = [trial for trial in trials() if not trial.large]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    kept = os.environ.get("BOLT_GPU_TRIALS")
    return compiled(TRIALS, tmp_path_factory.mktemp("kernels") if kept is None else Path(kept))


@pytest.mark.parametrize("index", range(len(TRIALS)), ids=lambda index: TRIALS[index].label)
def test_agrees_with_numpy(library: Library, index: int) -> None:
    outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0

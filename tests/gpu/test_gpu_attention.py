"""Attention of random extents agrees with NumPy on a GPU, whatever legal kernel computes it.

BOLT_GPU_SEED draws other ones: `BOLT_GPU_SEED=7 pytest -m gpu tests/gpu/test_gpu_attention.py`.
"""

from __future__ import annotations

import os

import pytest
from gpu_attention_layers import odd_trials
from gpu_harness import Library, compiled

pytestmark = pytest.mark.gpu

TRIALS = odd_trials(int(os.environ.get("BOLT_GPU_SEED", "1")), 12)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return compiled(TRIALS, tmp_path_factory.mktemp("attention"))


@pytest.mark.parametrize("index", range(len(TRIALS)), ids=lambda index: TRIALS[index].label)
def test_agrees_with_numpy(library: Library, index: int) -> None:
    outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0

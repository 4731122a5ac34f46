"""Every kernel of the CUDA families agrees with NumPy on a GPU, between guards, with every sharing of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_harness import TARGET, Library, compile_all, write
from gpu_layers import trials

from bolt_build.toolchain import probe

pytestmark = pytest.mark.gpu

TRIALS = [trial for trial in trials() if not trial.large]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    chain = probe(TARGET.tools)
    assert chain.diagnostics() == ()
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    assert nvcc is not None
    assert cutlass is not None
    folder = tmp_path_factory.mktemp("kernels")
    write(TRIALS, folder)
    compile_all(folder, Path(nvcc), Path(cutlass).parent)
    return Library(folder)


@pytest.mark.parametrize("index", range(len(TRIALS)), ids=lambda index: TRIALS[index].label)
def test_agrees_with_numpy(library: Library, index: int) -> None:
    outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0

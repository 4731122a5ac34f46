"""The emulated CUDA runtime ends calls as a real one does, whether they are right or wrong."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import emulated
import pytest

from bolt_build.toolchain import probe

LAUNCHES = """\
launch: cudaSuccess
filled: cudaSuccess
  5
  5
  -1
through shared memory: cudaSuccess
  131
  100
much shared memory: cudaErrorInvalidValue
leave: cudaSuccess
much shared memory: cudaSuccess
too much: cudaErrorInvalidValue
1025 threads: cudaErrorInvalidValue
no blocks: cudaErrorInvalidConfiguration
cluster: cudaSuccess
cluster: cudaErrorInvalidClusterSize
cluster: cudaErrorInvalidClusterSize
"""
COPIES = """\
beyond the end: cudaErrorInvalidValue
from the host: cudaErrorInvalidValue
to the host: cudaErrorInvalidValue
no direction: cudaErrorInvalidMemcpyDirection
default: cudaSuccess
nothing: cudaSuccess
100 GiB: cudaErrorMemoryAllocation
free of the host's: cudaErrorInvalidValue
"""
GRAPHS = """\
not passed: cudaErrorInvalidResourceHandle
end: cudaSuccess
instantiate: cudaSuccess
recorded: cudaSuccess
  0
  0
play: cudaSuccess
played: cudaSuccess
  7
  16843009
passed: cudaSuccess
passed in a recording: cudaErrorCapturedEvent
update: cudaSuccess
played again: cudaSuccess
  8
  33686018
allocate while recording: cudaErrorStreamCaptureUnsupported
  1
end: cudaErrorStreamCaptureInvalidated
wait while recording: cudaErrorStreamCaptureUnsupported
end: cudaErrorStreamCaptureInvalidated
update with less: cudaErrorGraphExecUpdateFailure
destroy: cudaSuccess
destroy again: cudaErrorInvalidResourceHandle
"""


def _nvcc() -> str:
    tool = probe(("nvcc",)).tool("nvcc")
    if tool.path is None:
        pytest.skip(f"needs nvcc: {tool.problem}")
    return tool.path


def _compiled(folder: Path, *flags: str) -> Path:
    source, program = emulated.PROBES / "runtime_probe.cu", folder / "probe"
    link = emulated.link_flags()
    subprocess.run([_nvcc(), "-std=c++17", *flags, *link, source, "-o", program], check=True)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _nvcc()
    return _compiled(tmp_path_factory.mktemp("runtime"), *emulated.compile_flags())


def _said(program: Path, part: str, **environment: str) -> tuple[str, str]:
    around = {**os.environ, **environment}
    done = subprocess.run([program, part], capture_output=True, text=True, check=True, env=around)
    return done.stdout, done.stderr


@pytest.mark.parametrize("seed", [None, "1"])
@pytest.mark.parametrize(("part", "wanted"), [("launches", LAUNCHES), ("copies", COPIES), ("graphs", GRAPHS)])
def test_calls_end_as_those_of_a_real_runtime(program: Path, part: str, wanted: str, seed: str | None) -> None:
    assert _said(program, part, **({} if seed is None else {"EMULATED_SEED": seed})) == (wanted, "")


def test_a_fault_loses_the_device(program: Path) -> None:
    stdout, stderr = _said(program, "faults")
    *names, text = stdout.splitlines()
    # Found out by the first call that waits, and then by every one.
    assert names == ["cudaSuccess", "cudaErrorIllegalAddress", "cudaErrorIllegalAddress"]
    assert text == "an illegal memory access was encountered"
    assert re.fullmatch(rf"emulated GPU: {text}: .*4 bytes of global memory written at 0x.*\n", stderr)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("-gencode", "arch=compute_90a,code=sm_90a"), "device code without PTX for sm_90"),
        (("-gencode", "arch=compute_90a,code=compute_90a", "--compress-mode=size"), "compressed PTX"),
    ],
)
def test_device_code_that_is_no_plain_ptx(tmp_path: Path, flags: tuple[str, ...], why: str) -> None:
    _nvcc()
    stdout, stderr = _said(_compiled(tmp_path, *flags), "launches")
    assert stdout.startswith("launch: cudaErrorNotSupported\n")
    assert stderr.startswith(f"emulated GPU: operation not supported: {why}: compile with ")

"""What takes part: the protocol behind which the engine and every peer stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bolt_build.bench.device import Device
from bolt_build.graph.ir import Array


@dataclass(frozen=True)
class Effort:
    """How much is measured: in each of `rounds` at most `runs` timed inferences that take about `seconds`, at least
    `LEAST_RUNS`; on a device that queues work, inferences back to back for `seconds` beside them."""

    rounds: int = 3
    runs: int = 50
    seconds: float = 1.0


LEAST_RUNS = 5


@dataclass(frozen=True)
class Setup:
    """What one contestant is given, for one batch.

    `where` is the memory that tensors live in ("cpu", "cuda"), `precision` what the engine computes in ("fp32", "fp16",
    "bf16"), `threads` the CPU threads to use, 0 for as many as the process may. `model` is the ONNX file, its symbolic
    dimensions bound by `dims`, some of which the engine has several extents of (`chosen`); `inputs` an .npz with one
    array an input, `arr_0` for the first of `input_names`."""

    contestant: str
    where: str
    precision: str
    batch: int
    threads: int
    model: str
    dims: tuple[tuple[str, int], ...]
    library: str
    weights: str
    inputs: str
    input_names: tuple[str, ...]
    effort: Effort
    chosen: tuple[tuple[str, int], ...] = ()

    @property
    def model_path(self) -> Path:
        return Path(self.model)


class PeerMissing(Exception):
    """A package that a peer needs is not installed: `message` says which, `hint` how to get it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class PeerFailed(Exception):
    """A peer cannot do what it was asked to; the text says why in a sentence."""


class Contestant(Protocol):
    """A model loaded for one batch, with its inputs where it wants them. What it holds goes with its process."""

    precision: str
    """What it computes in: "fp32", "fp16" or "bf16"."""
    form: str
    """Element type and order of its inputs: "f16 channels_last"."""
    compile_seconds: float | None
    """What compiling the model took, as part of getting ready; None for a contestant that compiles nothing."""
    stream: int
    """The cudaStream_t that `run` queues on; 0 is the default stream, and what it is on a CPU."""

    def run(self) -> None:
        """One inference on the inputs: done when it returns on a CPU, queued on `stream` on a GPU."""

    def settle(self) -> None:
        """Give back the memory that only getting ready needed."""

    def outputs(self) -> dict[str, Array]:
        """What the last run made, by the model's names: logical, row-major, f32 (integers as they are)."""


class Peer(Protocol):
    """A way to run the model. `name` is what `--against` calls it."""

    name: str

    def version(self, where: str) -> str:
        """Imports what the peer needs for tensors in `where`, and says what it is: "torch 2.11.0".

        Raises PeerMissing where that is not installed, PeerFailed where it can do nothing there.
        """

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        """Loads (and compiles) the model; `feeds` are logical, row-major, floating-point ones f32.

        Raises PeerFailed; any other exception counts as a failure of the peer too.
        """

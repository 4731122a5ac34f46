"""Peers of `tiny_engine.tiny_plan`, well-behaved and not, as another package offers them: `installed` installs it.

Each is what its name says; all but `honest` are wrong or in trouble in one way.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tiny_engine import tiny_constants, tiny_reference

from bolt_build.bench.contestant import Contestant, PeerFailed, PeerMissing, Setup
from bolt_build.bench.device import Device
from bolt_build.graph.ir import Array

if TYPE_CHECKING:  # each process of a peer reads this file
    import pytest

NAMES = ("honest", "liar", "misnamed", "misshapen", "absent", "unwilling", "broken", "mortal", "tiring", "patient")


@dataclass
class Running:
    """relu(x * scale + shift) in NumPy; `times` is how often it can."""

    x: Array
    name: str
    runs: int = 0
    precision: str = "fp32"
    form: str = "f32 row"
    compile_seconds: float | None = None
    stream: int = 0

    def run(self) -> None:
        self.runs += 1
        if self.name == "tiring" and self.runs > 15:
            raise RuntimeError("no more\nsecond line")
        self.y = tiny_reference(self.x, tiny_constants())

    def settle(self) -> None:
        pass

    def outputs(self) -> dict[str, Array]:
        if self.name == "misnamed":
            return {"z": self.y}
        if self.name == "misshapen":
            return {"y": self.y[:, :-1]}
        return {"y": np.cos(7 * self.y) if self.name == "liar" else self.y}


@dataclass(frozen=True)
class FakePeer:
    name: str

    def version(self, where: str) -> str:
        if self.name == "absent":
            raise PeerMissing("absent cannot be imported (No module named 'absent')", "pip install absent")
        return f"{self.name} 1.0 on {where}"

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        if self.name == "unwilling":
            raise PeerFailed(f"no batch of {setup.batch}")
        if self.name == "broken":
            print("about to break", flush=True)
            raise KeyError("x")
        if self.name == "mortal":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.name == "patient":
            Path(os.environ["BENCH_PEER_STARTED"]).write_text(str(os.getpid()))
            signal.pause()
        return Running(feeds["x"], self.name)


HONEST, LIAR, MISNAMED, MISSHAPEN, ABSENT, UNWILLING, BROKEN, MORTAL, TIRING, PATIENT = map(FakePeer, NAMES)


def installed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the peers known here and to processes that are started."""
    metadata = directory / "bench_peers-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-peers\nVersion: 1.0\n")
    points = "".join(f"{name} = bench_peers:{name.upper()}\n" for name in NAMES)
    (metadata / "entry_points.txt").write_text(f"[bolt_build.peers]\n{points}")
    monkeypatch.syspath_prepend(str(directory))
    paths = (str(directory), str(Path(__file__).parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

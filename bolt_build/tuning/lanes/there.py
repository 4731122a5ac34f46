"""What runs on a worker that owns a GPU: which GPU that is, and one work on it.

The driver and the candidates come from the machine that tunes, by their digests, and are kept as long as the worker.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.remote.dask import worker_folder
from bolt_build.build.remote.job import package_digest
from bolt_build.digest import digest_file
from bolt_build.errors import BoltError
from bolt_build.targets import target_named
from bolt_build.tuning.lanes.gpu import Gpu
from bolt_build.tuning.lanes.progress import Progress
from bolt_build.tuning.lanes.work import Answer, Work
from bolt_build.tuning.this_machine import FoundDevice, devices_of


@dataclass(frozen=True)
class Question:
    """Which GPU of the target (any, where `foreign`) a worker has; and, where there is a `work`, what comes of it in
    `budget` seconds. `package`, `program` and `candidates` are digests; the last is "" where there is no work."""

    package: str
    program: str
    target: str
    foreign: bool
    candidates: str = ""
    work: Work | None = None
    budget: float = 0.0


@dataclass(frozen=True)
class Told:
    """`refused` says why a worker does nothing, and goes on behind its address; `lacks` are digests of files that it
    has to get first. Otherwise the GPU, and what came of the work with what the driver `said`."""

    refused: str = ""
    lacks: tuple[str, ...] = ()
    gpu: FoundDevice | None = None
    answer: Answer | None = None
    said: tuple[Progress, ...] = ()


@dataclass(frozen=True)
class Piece:
    """Bytes of the file with this digest from `offset` on, as one `sender` sends them; the `last` ones end it."""

    digest: str
    sender: str
    offset: int
    data: bytes
    last: bool


_found: dict[str, FoundDevice] = {}
"""The GPU of this process by the driver that names it; it is forgotten when it is lost."""


def measured_there(question: Question) -> Told:
    """Answer a question. Raises OSError where this machine cannot (a full disk): another one may."""
    if package_digest() != question.package:
        return Told(refused="has another bolt-build")
    folder = _folder()
    wanted = [name for name in (question.program, question.candidates) if name]
    if lacks := tuple(name for name in wanted if not (folder / name).is_file()):
        return Told(lacks=lacks)
    program = folder / question.program
    if question.program not in _found:
        try:
            gpus = devices_of(program, target_named(question.target), foreign=question.foreign)
        except BoltError as error:
            return Told(refused=f"has no such GPU: {error.diagnostics[0].message}")
        _found[question.program] = gpus[0]
    gpu = _found[question.program]
    if question.work is None:
        return Told(gpu=gpu)
    said: list[Progress] = []
    lane = Gpu(gpu, program, folder / question.candidates, folder)
    answer = lane.measure(
        question.work, question.budget, lambda progress, _="": said.append(progress), lambda part: None
    )
    if answer.lost:
        del _found[question.program]
    return Told(gpu=gpu, answer=answer, said=tuple(said))


def kept_there(piece: Piece) -> bool:
    """Keep a piece of a file; False where those before it are missing, or the whole is another file. Raises OSError."""
    folder = _folder()
    part = folder / f"{piece.digest}.{piece.sender}.part"
    with part.open("ab" if piece.offset else "wb") as stream:
        if stream.tell() != piece.offset:
            return False
        stream.write(piece.data)
    if not piece.last:
        return True
    if digest_file(part) != piece.digest:
        with contextlib.suppress(OSError):
            part.unlink()
        return False
    part.chmod(0o700)
    part.replace(folder / piece.digest)
    return True


def _folder() -> Path:
    folder = Path(worker_folder()) / "bolt-build"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder

"""Builds for a CPU and a GPU, ended at random moments by Ctrl-C, SIGTERM and kill -9 in turn, each followed by a build.

    python benchmarks/endurance/interruptions.py  # 30 moments: some half an hour on 2 cores, no GPU needed
    python benchmarks/endurance/interruptions.py --moments 3 --seed 7 --targets host,t4

A build that is left alone gives the digests to compare with and the time in which moments lie, from the first line that
a build prints to its end. Each interruption starts from nothing, with a cache of its own, and must leave no process at
work after two seconds; Ctrl-C and SIGTERM must give 130 within these. The build that follows must finish, compile
nothing that had finished before, and leave the same bytes. Writes `results/interruptions.json`; ends with 1 where any
of that did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from bolt_build.digest import digest_file
from bolt_build.errors import ExitCode
from bolt_build.scratch import scratch_folder

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PRECISIONS = {"host": "fp32"}
SOON_SECONDS = 2.0
# Verification states how long it took.
TIMED = "verify.json"


@dataclass(frozen=True)
class Project:
    """A directory with a recipe and a model, and a cache that nobody else uses."""

    path: Path

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bolt_build", "net.yaml", "--cache", "cache", "--format", "json"]

    def start(self) -> subprocess.Popen[str]:
        """A build in a session of its own, as a terminal starts it: Ctrl-C reaches its foreground processes alone."""
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with (self.path / "events").open("w") as events, (self.path / "complaints").open("w") as complaints:
            return subprocess.Popen(
                self.command(), cwd=self.path, env=os.environ | {"PYTHONPATH": paths}, start_new_session=True,
                text=True, stdout=events, stderr=complaints,
            )  # fmt: skip

    def events(self) -> list[dict[str, Any]]:
        """What the last build printed, but for the piece of a line that a killed one leaves."""
        lines = (self.path / "events").read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def finished(self) -> set[str]:
        """The tasks that the last build finished, as "target/task: label"."""
        tasks = (event for event in self.events() if event["event"] == "task" and event["kind"] == "finished")
        return {f"{event['target']}/{event['task']}: {event['label']}" for event in tasks}

    def digests(self) -> dict[str, str]:
        """Digests of artifacts and compiled files by path."""
        generated = self.path / "generated"
        artifacts = [
            Path(target["directory"]) / name
            for target in self.events()[-1]["targets"]
            for name in target["artifacts"]
            if name != TIMED
        ]
        objects = [path for path in generated.glob("*/*/build/objects/**/*") if path.is_file()]
        return {str(path.relative_to(generated)): digest_file(path) for path in sorted((*artifacts, *objects))}

    def at_work(self) -> list[str]:
        """Names of the processes whose working directory is here: SCons, compilers, and all that these started."""
        return sorted(name for name, place in processes() if place.is_relative_to(self.path))


@dataclass
class Interruption:
    """One row of the result. Tasks are counted over all targets; `others_repeated` are tasks that compile nothing."""

    signal: str
    moment_seconds: float
    exit_code: int
    ended_seconds: float
    alone_seconds: float
    finished_before: int
    compiled_before: int
    compilations_repeated: list[str] = field(default_factory=list)
    others_repeated: list[str] = field(default_factory=list)
    next_build_seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


def processes() -> list[tuple[str, Path]]:
    """Name and working directory of every process that this user may look at and that has not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append(((entry / "comm").read_text().strip(), Path(os.readlink(entry / "cwd"))))
            except OSError:
                continue
    return found


def until(condition: Callable[[], bool], patience: float) -> bool:
    """Whether the condition came true in so many seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def new_project(path: Path, targets: list[str]) -> Project:
    """A convolution and a classifier for `targets`: few kernels, each of its own unit."""
    path.mkdir()
    generator = np.random.RandomState(0)

    def constant(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array((generator.randn(*shape) * 0.2).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Flatten", ["r"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], name="fc", transB=1),
    ]
    constants = [constant("w1", 8, 8, 3, 3), constant("b1", 8), constant("w2", 8, 512), constant("b2", 8)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8, 8, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path / "net.onnx"))
    rows = ", ".join(f"{name}: {{precision: {PRECISIONS.get(name, 'fp16')}}}" for name in targets)
    (path / "net.yaml").write_text(f"bolt: 1\nmodel: {{onnx: net.onnx, batch: 1}}\ntargets: {{{rows}}}\n")
    return Project(path)


def compilations(tasks: set[str]) -> set[str]:
    return {task for task in tasks if task.partition(": ")[2].startswith("compile ")}


def has_spoken(project: Project, build: subprocess.Popen[str]) -> bool:
    return build.poll() is not None or (project.path / "events").stat().st_size > 0


def build_to_the_end(project: Project) -> float:
    """Seconds from the first line of a build to its end. Exits where it fails."""
    build = project.start()
    until(lambda: has_spoken(project, build), 600)
    started = time.monotonic()
    if build.wait() != 0:
        sys.exit(f"a build ended with {build.returncode}:\n{(project.path / 'complaints').read_text()}")
    return time.monotonic() - started


def interrupt(project: Project, number: signal.Signals, moment: float) -> Interruption | None:
    """Interrupt a build `moment` seconds after its first line; None where it had ended before."""
    build = project.start()
    until(lambda: has_spoken(project, build), 600)
    try:
        build.wait(moment)
        return None
    except subprocess.TimeoutExpired:
        pass
    sent = time.monotonic()
    os.killpg(build.pid, number)
    code = build.wait()
    ended = time.monotonic() - sent
    until(lambda: not project.at_work(), SOON_SECONDS)
    alone = time.monotonic() - sent
    finished = project.finished()
    compiled = len(compilations(finished))
    row = Interruption(
        number.name, round(moment, 3), code, round(ended, 3), round(alone, 3), len(finished), compiled
    )  # fmt: skip
    if left := project.at_work():
        row.wrong.append(f"still at work: {', '.join(left)}")
    if code != (-signal.SIGKILL if number == signal.SIGKILL else ExitCode.INTERRUPTED):
        row.wrong.append(f"exit code {code}")
    if ended > SOON_SECONDS:
        row.wrong.append("it took more than two seconds to end")
    return row


def go_on(project: Project, row: Interruption, expected: dict[str, str]) -> None:
    """The build that follows: what it repeats and what it leaves."""
    before = project.finished()
    row.next_build_seconds = round(build_to_the_end(project), 3)
    repeated = before & project.finished()
    row.compilations_repeated = sorted(compilations(repeated))
    row.others_repeated = sorted(repeated - compilations(repeated))
    if row.compilations_repeated:
        row.wrong.append("finished compilations were repeated")
    found = project.digests()
    if different := sorted(name for name in expected.keys() | found if expected.get(name) != found.get(name)):
        row.wrong.append(f"different: {', '.join(different)}")


def measure(place: Path, targets: list[str], moments: int, seed: int, stream: IO[str]) -> dict[str, Any]:
    """Every figure; each row is printed when it is there."""
    undisturbed = new_project(place / "undisturbed", targets)
    seconds = build_to_the_end(undisturbed)
    expected = undisturbed.digests()
    stream.write(f"a build that is left alone: {seconds:.1f} s, {len(expected)} files to compare\n")
    chance = random.Random(seed)
    rows: list[Interruption] = []
    while len(rows) < moments:
        project = new_project(place / "interrupted", targets)
        row = interrupt(project, SIGNALS[len(rows) % len(SIGNALS)], chance.uniform(0, seconds))
        if row is not None:
            go_on(project, row, expected)
            rows.append(row)
            stream.write(json.dumps(asdict(row)) + "\n")
            stream.flush()
        shutil.rmtree(project.path)
    return {
        "targets": targets, "seed": seed, "undisturbed_seconds": round(seconds, 3), "files_compared": len(expected),
        "interruptions": len(rows), "wrong": sum(bool(row.wrong) for row in rows),
        "compilations_finished_before": sum(row.compiled_before for row in rows),
        "compilations_repeated": sum(len(row.compilations_repeated) for row in rows),
        "slowest_end_seconds": {
            number.name: max((row.ended_seconds for row in rows if row.signal == number.name), default=None)
            for number in SIGNALS
        },
        "slowest_to_be_alone_seconds": max((row.alone_seconds for row in rows), default=None),
        "rows": [asdict(row) for row in rows],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=30, metavar="N", help="interruptions (default: 30)")
    parser.add_argument("--targets", default="host,a100", help="of the recipe (default: host,a100)")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments (default: 0)")
    arguments = parser.parse_args()
    with scratch_folder() as place:
        figures = measure(place, arguments.targets.split(","), arguments.moments, arguments.seed, sys.stdout)
    head = record.environment("bolt-build", "scons", "nvidia-cuda-nvcc", "nvidia-cutlass", "onednn-cpu-gomp")
    print(record.write("interruptions", head | figures))
    return 1 if figures["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

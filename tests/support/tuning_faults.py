"""Candidates with faults, for a GPU: each must become a status, while the others are measured.

python tests/support/tuning_faults.py build FOLDER   (compilers, no GPU)
python FOLDER/check.py                       (a GPU, no compilers: nothing but this file and what lies beside it)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bolt_build.tuning.trials.tuning_set import ProblemTrials

LIMIT_SECONDS = 2.0
PREPARING_SECONDS = 10.0
"""On top of the limit where a player has to prepare an engine again, because the candidate before ended its process."""

EXPECTED = (
    ("kNone", "ok", ""),
    ("kPrints", "ok", ""),
    ("kWrong", "wrong", "is 2, the reference has "),
    ("kUnwritten", "wrong", "is nan, the reference has "),
    ("kWrongLater", "wrong", "is 2, the reference has "),
    ("kBehind", "out-of-bounds", "wrote behind its output"),
    ("kBefore", "out-of-bounds", "wrote before its output"),
    ("kIntoInput", "out-of-bounds", "wrote into its input"),
    ("kBehindScratch", "out-of-bounds", "wrote behind its scratch memory"),
    ("kCounts", "out-of-bounds", "wrote into its counters"),
    ("kNullPointer", "crashed", "cudaErrorIllegalAddress"),
    ("kTrap", "crashed", "the kernel: "),
    ("kNeverEnds", "timed-out", f"took longer than {LIMIT_SECONDS:g} s"),
    ("kHostHangs", "timed-out", f"took longer than {LIMIT_SECONDS:g} s"),
    ("kHostCrashes", "crashed", "its process was ended by signal 6 (Aborted)"),
    ("kExits", "crashed", "its process ended with exit status 0"),
    ("kThrows", "refused", "this kernel does not take the problem"),
    ("kTooManyThreads", "refused", "invalid argument"),
    ("kAllocates", "refused", ""),
    ("kNoMemory", "out-of-memory", "no memory is left"),
    ("kNone", "ok", ""),
)
"""Of each candidate, in order: its fault, the status that it must get, and what its message contains."""

IN_ENGINE = (
    ("kThrows", "refused", "first: this kernel does not take the problem"),
    ("kNullPointer", "crashed", "an illegal memory access was encountered"),
    ("kNeverEnds", "timed-out", f"took longer than {LIMIT_SECONDS + PREPARING_SECONDS:g} s"),
    ("kHostHangs", "timed-out", f"took longer than {LIMIT_SECONDS + PREPARING_SECONDS:g} s"),
    ("kHostCrashes", "crashed", "its process was ended by signal 6 (Aborted)"),
    ("kExits", "crashed", "its process ended with exit status 0"),
    ("kNoMemory", "out-of-memory", "no memory is left"),
    ("kPrints", "ok", ""),
)
"""The same of candidates that are tried in the place of the first in an engine that runs the problem twice."""


def build(folder: Path) -> None:
    """`folder` with the driver, candidates.so, what is expected of it, and this file to check it with."""
    import tuning_builder as builder
    from families_harness import Input, Layer, graph_with
    from gpu_harness import TARGET

    from bolt_build.dtypes import DType
    from bolt_build.families import load
    from bolt_build.families.base import Candidate, Family, KernelProblem, StepCode, StepExpressions
    from bolt_build.graph.ops.elementwise.activation import Activation
    from bolt_build.targets import Target
    from bolt_build.tuning.compile import glue
    from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial

    class Faults:
        """As much of a `Family` as glue asks of one."""

        name = "faults"

        def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
            count = problem.outputs[0].type.elements
            kind = f"faults::Clip<faults::Fault::{dict(candidate.parameters)['fault']}>"
            call = f"kernel.run(r, {at.inputs[0]}, {at.outputs[0]});"
            return StepCode(("tuning/faults.h",), kind, str(count), call)

    layer = Layer("relu", Activation("relu"), (Input((8, 64, 56, 57)),), precision=DType.F16)
    families: dict[str, Family] = {family.name: family for family in load(TARGET)}
    families["faults"] = Faults()  # type: ignore[assignment]
    graph, node = graph_with(layer)
    problem = families["portable"].propose(graph, node, TARGET, DType.F16)[0][0].steps[0].problem
    trials = tuple(
        Trial(Candidate("faults", (("fault", fault), ("place", place))), 1e-5)
        for place, (fault, *_) in enumerate(EXPECTED)
    )
    problems = (ProblemTrials(problem, ("relu",), trials, ()),)
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    for made in (
        glue.source_of([problems[0]], families, TARGET),
        glue.table_source(problems, "faults", TARGET),
    ):
        (source / made.name).write_text(made.text)
    (folder / "faults.tsv").write_text(_engine(problems[0]))
    builder.build_driver(folder)
    builder.build_candidates(folder)
    shutil.copy(__file__, folder / "check.py")


def _engine(trials: ProblemTrials) -> str:
    """An engine of two steps, with times at which the first candidate wins and those of IN_ENGINE are tried."""
    from bolt_build.planner.engine_plan import Location
    from bolt_build.planner.selection import ChosenCover
    from bolt_build.tuning.exchange.engines_tsv import engines_text
    from bolt_build.tuning.trials.engine_table import EngineLineup, EngineTable, TableStep

    tried = [fault for fault, *_ in IN_ENGINE]
    problem, between = trials.problem.digest, Location("arena", 256)
    steps = (
        TableStep("first", problem, (Location("input", 0),), (between,)),
        TableStep("second", problem, (between,), (Location("output", 0),)),
    )
    medians = {(problem, trials.trials[0].candidate): 10.0}
    for trial in trials.trials[1:]:
        fault = str(dict(trial.candidate.parameters)["fault"])
        if fault in tried:
            medians[problem, trial.candidate] = 10.2 + 0.01 * tried.index(fault)
    table = EngineTable("faults", "0" * 64, 8, steps)
    return engines_text([EngineLineup(((table, ChosenCover("0" * 64, 8, ())),))], [trials], medians)


def played(folder: Path, results: Path) -> list[dict[str, Any]]:
    """What the driver says of the swaps of IN_ENGINE, in their order, and last of the engine."""
    argv = [
        folder / "run", "--results", results, "--limit", str(LIMIT_SECONDS), "--gpus", "0", "--stage", "engines",
        "--engines", folder / "faults.tsv", "--engine-budget", "120", "--preparing-limit", str(PREPARING_SECONDS),
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, timeout=300)
    sys.stderr.write(done.stderr)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert workers_of(folder / "run") == []
    return [line for line in lines if line["kind"] in ("swap", "engine")]


def engine_complaints(found: list[dict[str, Any]]) -> list[str]:
    """What is wrong with what `played` gives."""
    *swaps, engine = found
    wrong = []
    for (fault, status, message), line in zip(IN_ENGINE, swaps, strict=False):
        if line["status"] != status or message not in line["message"]:
            wrong.append(f"{fault}: {line['status']} '{line['message']}', not {status} '{message}'")
        elif (line["first"] is not None) != (status == "ok"):
            wrong.append(f"{fault}: times {line['first']} with status {status}")
    if len(swaps) < len(IN_ENGINE):
        wrong.append(f"{len(swaps)} swaps were tried, not {len(IN_ENGINE)}")
    if engine["kind"] != "engine" or engine["status"] != "ok" or not engine["complete"]:
        wrong.append(f"the engine: {engine}")
    return wrong


def measured(folder: Path, results: Path) -> list[dict[str, Any]]:
    """The records that the driver in `folder` gives, in the order of `EXPECTED`, and nothing of it is left running."""
    driver = folder / "run"
    argv = [driver, "--results", results, "--limit", str(LIMIT_SECONDS), "--gpus", "0"]
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, timeout=300)
    sys.stderr.write(done.stderr)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert lines[-1]["kind"] == "end"
    assert workers_of(driver) == []
    return [line for line in lines if line["kind"] == "record"]


def workers_of(driver: Path) -> list[int]:
    """Processes that run this driver."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                program = os.readlink(entry / "exe")
            except OSError:
                continue
            if program == str(driver.resolve()):
                found.append(int(entry.name))
    return found


def complaint(record: dict[str, Any], place: int) -> str | None:
    """What is wrong with the record of one candidate, None where nothing is."""
    fault, status, message = EXPECTED[place]
    if record["status"] != status or message not in record["message"]:
        return f"{fault}: {record['status']} '{record['message']}', not {status} '{message}'"
    if (record["statistics"] is not None) != (status == "ok"):
        return f"{fault}: statistics {record['statistics']} with status {status}"
    return None


def main() -> int:
    if sys.argv[1:2] == ["build"]:
        build(Path(sys.argv[2]))
        return 0
    folder = Path(__file__).resolve().parent
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("faults.jsonl")
    records = measured(folder, results)
    complaints = [text for place, record in enumerate(records) if (text := complaint(record, place)) is not None]
    complaints += engine_complaints(played(folder, results))
    print("\n".join([*complaints, f"{len(records)} of {len(EXPECTED)} candidates, {len(complaints)} wrong"]))
    return 1 if complaints or len(records) != len(EXPECTED) else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.exit(main())

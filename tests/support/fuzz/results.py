"""Results of a measurement (results.jsonl), read and taken into records."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation
from fuzzing.commands import shown
from fuzzing.json_mutation import spoiled
from tune_sets import FIRST, SECOND, bundle, tuning_set

from bolt_build.errors import BoltError
from bolt_build.lockfile.fingerprint import Device
from bolt_build.targets import target_named
from bolt_build.tuning.exchange.bundle import bundle_text
from bolt_build.tuning.exchange.engine_results import EngineRow, PlanRow, SwapRow, Unplayed
from bolt_build.tuning.exchange.results import RESULTS_VERSION, Results, Row, Unmeasured, read_results, results_text
from bolt_build.tuning.importing import adopt, bundle_of
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.records.engine_record import Gain
from bolt_build.tuning.records.kernel_record import Statistics, Status

LONG, SHORT = 4000, 60

_DEVICE = Device("NVIDIA A100-SXM4-40GB", 108, 40_000_000_000, 400, "570.86.15")
_TIMES = Statistics(15.25, 15.0, 16.5, 0.004, 12, 64)
_GAIN = Gain(0.01, 0.005, 0.02, 9)


def _right() -> Results:
    """A complete measurement of the bundle of `tune_sets`."""
    rows, kernels = [], []
    for problem in (FIRST, SECOND):
        names = [trial.candidate.digest for trial in problem.trials]
        rows += [Row(problem.problem.digest, name, 0, Status.OK, "", _TIMES, 0.125) for name in names[1:]]
        rows.append(Row(problem.problem.digest, names[0], 0, Status.CRASHED, "signal 11"))
        kernels.append((problem.problem.digest, names[0], names[1]))
    kernels.sort()
    base, chosen = tuple((p, first) for p, first, _ in kernels), tuple((p, second) for p, _, second in kernels)
    swap = SwapRow("E", *chosen[0], 0, Status.OK, "", _TIMES, _TIMES, _GAIN, True)
    plan = PlanRow("E", "F", 0, Status.WRONG, "differs", None, None, None, False)
    engine = EngineRow("E", 1, "E", 0, Status.OK, "", _TIMES, _TIMES, _GAIN, 0.001, 1, 1, True, base, chosen)
    return Results(
        RESULTS_VERSION, bundle().id, "a100", (_DEVICE,), tuple(rows), (Unmeasured("p", "c", "no time"),), True, 12.5,
        (swap,), (engine,), (Unplayed("G", 4, "no time"),), (plan,),
    )  # fmt: skip


def case(random: Random) -> Case:
    """Most are lines with other values: those get furthest."""
    lines: list[Any] = [json.loads(line) for line in results_text(_right()).splitlines()]
    kind = random.randrange(6)
    if kind == 0:
        data = mutated(random, results_text(_right()).encode(), [b'{"kind": "end"}\n', b"\xff\n"])
        return _case("bytes", data)
    if kind == 1:
        random.shuffle(lines)
    for _ in range(random.choice((1, 1, 2, 5))):
        place = random.randrange(len(lines))
        change = random.randrange(5)
        if change == 0:
            del lines[place]
        elif change == 1:
            lines.insert(random.randint(0, len(lines)), lines[place])
        else:
            lines[place] = spoiled(random, lines[place])
        if not lines:
            break
    end = random.choice(("\n", "\n", "\n", "\r\n", "", "\n\n"))
    return _case("lines", (end.join(map(json.dumps, lines)) + end).encode())


def _case(about: str, data: bytes) -> Case:
    return Case(about, (("results.jsonl", data), ("bundle.json", bundle_text(bundle()).encode())))


def check(case: Case, folder: Path) -> str:
    """What is taken of a file is the same when it is written and read again, and can be kept."""
    case.write(folder)
    path, target = folder / "results.jsonl", target_named("a100")
    try:
        found = read_results(path)
        again = folder / "again.jsonl"
        again.write_text(results_text(found))
        if read_results(again) != found:
            raise Violation("written and read again it is another measurement")
        made = bundle_of(found, path, "net", "a100", (folder / "bundle.json",))
        adopted = adopt(found, path, made, tuning_set(FIRST, SECOND), target, foreign=False)
        with Records(folder / "records.sqlite") as records:
            for fingerprint, record in adopted.measurements:
                records.merge(fingerprint, [record])
            records.merge_engines(adopted.engines)
        shown(adopted.notes)
    except BoltError as error:
        return shown(error.diagnostics)
    return "taken"

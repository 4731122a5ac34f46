"""Feeds inputs made at random to all that reads what others wrote (tests/fuzz), and says what violated.

    python benchmarks/endurance/fuzz.py [KIND...] [--count N] [--seed N] [--workers 2] [--keep FOLDER] [--out FILE]
    python benchmarks/endurance/fuzz.py KIND --case N [--seed N] --keep FOLDER

The second form makes one case again, checks it, and leaves its files in FOLDER. Of kinds that a run
leaves out, the file keeps what it says. Exits with 1 where anything violated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS, record
from bolt_build.scratch import scratch_folder

sys.path[:0] = map(str, TESTS)

import fuzz
from fuzzing import supervisor, worker
from fuzzing.case import Limits, random_of

LIMITS = Limits()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(fuzz.names())
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {known} (default: all)")
    parser.add_argument("--count", type=int, help="cases of each kind (default: what the kind says)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where the files of violating cases stay (default: nowhere)")
    parser.add_argument("--out", type=Path, help="write here instead of results/fuzz.json")
    args = parser.parse_args()
    kinds = tuple(args.kinds) or fuzz.names()
    for kind in kinds:
        if kind not in fuzz.names():
            parser.error(f"no kind '{kind}': {known}")
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    with scratch_folder() as temporary:
        home = (args.keep or temporary).resolve()
        if args.case is not None:
            sys.exit(one(kinds[0], args.seed, args.case, home))
        orders = [(kind, args.count or fuzz.kind(kind).LONG) for kind in kinds]
        begun = time.monotonic()
        tallies = supervisor.run(orders, args.seed, args.workers, home, LIMITS, lambda text: print(text, flush=True))
        head = record.environment("bolt-build", "onnx", "numpy", "pyyaml") | {"wall_s": round(time.monotonic() - begun)}
    limits = {"cpu_s": LIMITS.cpu, "wall_s": LIMITS.wall, "bytes": LIMITS.memory}
    found = {kind: head | {"limits": limits} | summary(tally) for kind, tally in tallies.items()}
    print(record.write("fuzz", {"kinds": dict(sorted((others(args.out) | found).items()))}, args.out))
    sys.exit(1 if any(tally.violations for tally in tallies.values()) else 0)


def others(out: Path | None) -> dict[str, Any]:
    """What an earlier run found of other kinds: each kind has its own date and command."""
    path = record.RESULTS / "fuzz.json" if out is None else out
    known: dict[str, Any] = json.loads(path.read_text())["kinds"] if path.exists() else {}
    return {kind: known[kind] for kind in known if kind in fuzz.names()}


def one(kind: str, seed: int, number: int, home: Path) -> int:
    """Makes and checks one case in this process, whose files stay in `home`. Returns an exit code."""
    module = fuzz.kind(kind)
    prepare = getattr(module, "prepare", None)
    if prepare is not None:
        (home / "prepared").mkdir()
        prepare(home / "prepared")
    case = module.case(random_of(kind, seed, number))
    print(f"{kind} {number}: {case.about}")
    case.write(home)
    answer = worker.run_one(kind, module, seed, number, home, LIMITS)
    print(answer["violation"] or answer["outcome"])
    return 0 if answer["violation"] is None else 1


def summary(tally: supervisor.Tally) -> dict[str, Any]:
    """One kind's part of the result."""
    return {
        "seed": tally.seed,
        "cases": tally.cases,
        "cpu_s": round(tally.seconds, 1),
        "outcomes": dict(tally.outcomes.most_common()),
        "slowest": tally.slowest and {"s": round(tally.slowest.seconds, 3), **place(tally, tally.slowest)},
        "largest": tally.largest and {"mb": round(tally.largest.peak / 1e6), **place(tally, tally.largest)},
        "violations": [
            {"what": answer.violation, **place(tally, answer)}
            for answer in sorted(tally.violations, key=lambda answer: answer.number)
        ],
    }


def place(tally: supervisor.Tally, answer: supervisor.Answer) -> dict[str, str]:
    """What a case was and how it is made again."""
    again = f"python benchmarks/endurance/fuzz.py {tally.kind} --seed {tally.seed} --case {answer.number} --keep FOLDER"
    return {"about": answer.about, "again": again}


if __name__ == "__main__":
    main()

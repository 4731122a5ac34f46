"""What the tuning driver reads, under sanitizers: engines.tsv, and lines of its workers, of which it writes results."""

from __future__ import annotations

from pathlib import Path
from random import Random

from fuzzing import sanitized
from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation

from bolt_build.errors import BoltError
from bolt_build.tuning.exchange.results import read_results

LONG, SHORT = 5000, 25

_NUMBERS = (
    "0", "1", "2", "64", "-1", "", " 5", "+5", "0x10", "1e3", "1.5", "nan", "inf", "-inf", "1e999", "9" * 400,
    str(2**31), str(2**32), str(2**63), str(2**64 - 1), str(2**64), "1,2", "\0",
)  # fmt: skip
_PLACES = (
    "a0", "w3", "i0+16", "o0", "a", "z1", "\0", "", "a0,a1", "a0,w1", "a64,w1", "i1,w0", ",", "a+", "a1+2+3", "a-1",
)  # fmt: skip
_WORDS = (
    "ok", "refused", "wrong", "crashed", "out-of-memory", "go", "end", "ready", "failed", "", "x" * 3000, "\xff\xfe",
    '"\\',
)  # fmt: skip

_reader: Path | None = None


def prepare(folder: Path) -> None:
    global _reader
    _reader = sanitized.driver_reader(folder)


def case(random: Random) -> Case:
    mode = random.choice(("tables", "lines"))
    if mode == "tables":
        lines = _table(random)
    else:
        lines = [_worker_line(random) for _ in range(random.choice((1, 5, 20)))]
    data = ("\n".join(lines) + random.choice(("\n", ""))).encode("latin-1")
    if random.random() < 0.25:
        data = mutated(random, data, [b"engine\tE\t1\n", b"\t" * 2000])
    return Case(mode, (("lines", data),), (mode,))


def _table(random: Random) -> list[str]:
    """Known candidates, then engines of one to three plans; a line in twenty is another."""
    lines = ["bolt-engines\t1"]
    for problem in "01":
        lines.append(f"problem\tp{problem}")
        lines += [f"trial\tc{trial}\tcutlass\t0\t{random.choice(('-', '5.5', '7'))}" for trial in "01"]
    for engine in range(random.choice((1, 1, 3))):
        for plan in range(random.choice((1, 1, 3))):
            lines.append(f"plan\tE{engine}.{plan}" if plan else f"engine\tE{engine}\t4")
            lines += [_step(random) for _ in range(random.choice((1, 2, 9)))]
    return [_other_line(random) if random.random() < 0.02 else line for line in lines]


def _step(random: Random) -> str:
    def place() -> str:
        return f"{random.choice('aiow')}{random.choice((0, 1, 64, 4096))}{random.choice(('', '', '+16'))}"

    problem = random.choice("01")
    if random.random() < 0.03:
        return f"step\tconv\tp{problem}\t{random.choice(_PLACES)}\t{random.choice(_PLACES)}"
    return f"step\tconv\tp{problem}\t{place()},{place()}\t{place()}"


def _other_line(random: Random) -> str:
    number = random.choice(_NUMBERS)
    lines = (
        f"bolt-engines\t{number}", "problem\tpx", f"trial\tc0\tcutlass\t{number}\t-", "trial\tcx\tcutlass\t0\t-",
        f"trial\tc1\tcutlass\t0\t{number}", f"engine\tE\t{number}", "plan\tF", "unknown\tline", "",
        f"step\tconv\tp0\ta{number},w0\ta0", f"step\tconv\tp0\ta0,i0+{number}\ta0", "step\tconv\tp0\ta0\ta0",
    )  # fmt: skip
    return random.choice(lines)


def _worker_line(random: Random) -> str:
    def some(*right: str) -> list[str]:
        return [word if random.random() < 0.93 else random.choice((*_NUMBERS, *_WORDS)) for word in right]

    times = ("5.25", "5", "6.5", "0.01", "9", "64")
    status = random.choice(("ok", "ok", "ok", "wrong", "crashed"))
    message = random.choice(("", "element 3", *_WORDS)).replace("\n", "")
    ending, error = random.choice(("go", "end")), random.choice(("-", "0.5"))
    fields = random.choice(
        (
            ("result", *some(random.choice("01"), status, ending, *times, error), message),
            ("compared", *some(status, ending, *times, *times, "0.01", "0.005", "0.02", "7"), message),
            ("device", *some("0", "GPU-1", "A GPU", "132", "80000000000", "700", "570.1", "90")),
            ("ready", message), ("failed", *some("crashed", message)), ("0:1,0",), ("-1,1",),
            (random.choice(_NUMBERS),),
        )
    )  # fmt: skip
    return "\t".join(fields)


def check(case: Case, folder: Path) -> str:
    """Whatever workers say, the results that are written are whole, and are read with as many rows."""
    case.write(folder)
    assert _reader is not None, "prepared"
    mode = case.arguments[0]
    done = sanitized.run(_reader, mode, folder / "lines", *([folder / "results"] if mode == "lines" else []))
    if mode == "tables":
        return "tables read" if done.code == 0 else "tables refused"
    devices, outcomes, swaps = map(int, done.out.split())
    try:
        found = read_results(folder / "results")
    except BoltError as error:
        raise Violation(f"results that are written cannot be read: {error}") from error
    if (len(found.devices), len(found.rows), len(found.swaps), found.complete) != (devices, outcomes, swaps, True):
        raise Violation(f"{done.out.strip()} were written, and are not what is read")
    return "results with rows" if outcomes or swaps else "results"

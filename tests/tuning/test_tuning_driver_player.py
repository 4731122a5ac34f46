"""The player over a CUDA runtime that is a stand-in: which kernels run on which memory, and what they are timed at."""

from __future__ import annotations

import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fuzzing import sanitized
from shared_folders import entered
from tuning_fakes import DATA

from bolt_build.tuning.compile import glue

ENGINE = """\
bolt-engines\t1
problem\tp0
problem\tp1
engine\tE\t1
step\tone\tp0\ti0,w0\ta0
step\ttwo\tp1\ta0,w1\ta64
step\tthree\tp0\ta64,w2\ta64
step\tlast\tp1\ta64,w3\to0+16
plan\tF
step\tonly\tp0\ti0,w0\to0
"""


@functools.cache
def program() -> Path:
    with entered("tuning-player") as folder:
        return _compiled(folder / "player")


def _compiled(path: Path) -> Path:
    """Once for all workers."""
    if path.exists():
        return path
    place = glue.driver_sources()[0].parent
    choosing = sanitized.driver_choosing(path.with_name("choosing"))
    sources = [place / name for name in ("played_plan.cpp", "player.cpp")]
    includes = (DATA / "fake_cuda", place, glue.include_dir())
    flags = ("-std=c++17", "-O0", "-g1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")
    unit = path.with_name("unit.cpp")
    unit.write_text("".join(f'#include "{source}"\n' for source in (*sources, DATA / "player.cpp")))
    argv = ["g++", *flags, *(f"-I{path}" for path in includes), str(unit), str(choosing)]
    subprocess.run([*argv, "-o", str(path)], check=True)
    return path


@dataclass(frozen=True)
class Launch:
    kernel: str
    x: int
    w: int
    y: int
    packed: bool
    overlap: bool
    constant: tuple[float, ...]


@dataclass(frozen=True)
class Answer:
    """`times` are microseconds of the two; `launches` those of the last replay."""

    status: str
    message: str
    times: tuple[float, float]
    gain: float
    launches: tuple[Launch, ...]


def compare(tmp_path: Path, *questions: str) -> list[Answer]:
    (tmp_path / "engines.tsv").write_text(ENGINE)
    text = "".join(question + "\n" for question in questions)
    argv = [program(), tmp_path / "engines.tsv"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert last == "left 0 kernels, 0 pieces of memory"
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("compared"):
            found.append([line])
        else:
            found[-1].append(line.strip())
    return [_answer(*each) for each in found]


def _answer(line: str, *launches: str) -> Answer:
    fields = line.split("\t")
    made = []
    for launch in launches:
        kernel, x, w, y, packed, overlap, *constant = launch.split()
        places = (int(x, 16), int(w, 16), int(y, 16))
        made.append(Launch(kernel, *places, packed == "packed", overlap == "1", tuple(map(float, constant))))
    message = fields[19] if len(fields) > 19 else ""
    return Answer(
        fields[1],
        message,
        (round(float(fields[3]), 2), round(float(fields[9]), 2)),
        round(float(fields[15]), 5),
        tuple(made),
    )


def test_the_whole_is_timed_and_each_step_runs_its_problems_trial(tmp_path: Path) -> None:
    noise, swap, swapped = compare(tmp_path, "0:0,0 0:0,0", "0:0,0 0:1,0", "0:1,0 0:1,0")
    assert (noise.status, noise.times, noise.gain) == ("ok", (600.0, 600.0), 0.0)
    assert (swap.status, swap.times, swap.gain) == ("ok", (600.0, 580.0), 0.03333)
    assert [launch.kernel for launch in noise.launches] == ["0.0", "1.0", "0.0", "1.0"]
    assert [launch.kernel for launch in swapped.launches] == ["0.1", "1.0", "0.1", "1.0"]


def test_steps_read_what_others_wrote_where_the_plan_has_it(tmp_path: Path) -> None:
    (found,) = compare(tmp_path, "0:0,0 0:0,0")
    one, two, three, last = found.launches
    assert (one.y, two.y - one.y) == (two.x, 64)
    assert (three.x, three.y, last.x) == (two.y, two.y, two.y)
    assert len({launch.w for launch in found.launches}) == 4
    assert len({one.x, one.y, two.y, last.y}) == 4


def test_every_step_has_packed_constants_of_its_own_and_launches_overlap(tmp_path: Path) -> None:
    for answer in compare(tmp_path, "0:0,0 0:0,0", "0:2,1 0:2,1", "0:0,0 0:1,1"):
        assert all(launch.packed and launch.overlap for launch in answer.launches)


def test_tables_ascend_evenly_and_other_constants_are_random(tmp_path: Path) -> None:
    (found,) = compare(tmp_path, "0:0,0 0:0,0")
    one, two, three, last = (launch.constant for launch in found.launches)
    assert two == last == (-1.0, 0.0, 1.0, 2.0)
    assert sorted(one) != list(one)
    assert one != three
    assert all(-1 <= value <= 2 for value in (*one, *three))


def test_more_scratch_memory_makes_recordings_anew(tmp_path: Path) -> None:
    """The sanitizer tells of recordings that keep what was freed."""
    found = compare(tmp_path, "0:0,0 0:1,0", "0:1,0 0:2,0", "0:0,0 0:1,1", "0:2,1 0:0,0")
    assert [answer.status for answer in found] == ["ok"] * 4
    assert found[-1].times == (642.0, 600.0)


def test_another_plan_has_memory_of_its_own(tmp_path: Path) -> None:
    first, both, other, again = compare(tmp_path, "0:0,0 0:0,0", "0:0,0 1:1,0", "1:1,0 1:1,0", "0:0,0 0:0,0")
    assert both.times == (600.0, 90.0)
    assert [launch.kernel for launch in other.launches] == ["0.1"]
    places = {place for launch in first.launches for place in (launch.x, launch.w, launch.y)}
    assert not places & {place for launch in other.launches for place in (launch.x, launch.w, launch.y)}
    assert again.launches == first.launches


def test_a_kernel_that_refuses_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    refused, found = compare(tmp_path, "0:0,0 0:0,2", "0:0,0 0:1,0")
    assert (refused.status, refused.message) == ("refused", "two: it does not take this")
    assert (found.status, found.times) == ("ok", (600.0, 580.0))


def test_a_problem_that_no_step_of_the_plan_has_needs_no_kernel(tmp_path: Path) -> None:
    (found,) = compare(tmp_path, "1:0,-1 1:1,-1")
    assert (found.status, found.times) == ("ok", (100.0, 90.0))

"""How threads of CPU engines wait: shortly where other programs want the CPUs, as they always do where none does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_engine import _run as run_command

from bolt_build import runtime

PROGRAM = r"""
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "bolt/waiting.h"

using namespace bolt::device;

int threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// What begins and ends with threads does so in its own time.
int settled(int wanted) {
  for (int i = 0; i < 1500 && threads() != wanted; ++i) usleep(1000);
  return threads();
}

void judge() {
  Crowding crowding;
  const auto ran = [&](double seconds, long preemptions) {
    crowding.ran({5, 7}, {5 + seconds, 7 + preemptions});
    std::printf("%d", crowding.crowded());
  };
  std::printf("%d", crowding.crowded());
  ran(0.04, 0);   // no window yet
  ran(0.02, 0);   // a quiet one
  ran(0.04, 90);  // no window yet
  ran(0.02, 0);   // a crowded one, though the last run was not
  ran(1.0, 25);   // a long run, as often interrupted as machines are
  ran(1.0, 26);
}

void wait_shortly() {
  constexpr int rounds = 100;
  const Sleepers sleepers(omp_get_num_procs() + 1);
  settled(2 + omp_get_num_procs());
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < rounds; ++i) {
#pragma omp parallel num_threads(2)
    asm volatile("");
    usleep(2000);
  }
  getrusage(RUSAGE_SELF, &after);
  // This thread sleeps once a round. The other one of the team does where it does not spin all the while.
  std::printf("%d", after.ru_nvcsw - before.ru_nvcsw >= rounds * 3 / 2);
}

void choose() {
  Waiting waiting;
  const int cpus = omp_get_num_procs();
  waiting.begins(1);
  std::printf("%d ", threads());
  waiting.begins(cpus + 1);
  std::printf("%d ", settled(1 + 2) - 1);
  waiting.ended(cpus + 1, {}, {0.1, 0});
  std::printf("%d ", settled(1) - 1);
  waiting.ended(cpus + 1, {}, {0.1, 1000});
  std::printf("%d", settled(1 + 2) - 1);
}

void leave_a_child_alone() {
  static Sleepers sleepers(2);
  settled(3);
  std::fflush(stdout);
  if (const pid_t child = fork(); child == 0) {
    std::exit(7);  // with the destructors of what is static
  } else {
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("%d", WEXITSTATUS(status));
  }
}

int main(int, char** argv) {
  const char* what = argv[1];
  if (std::strcmp(what, "judge") == 0) judge();
  if (std::strcmp(what, "wait") == 0) wait_shortly();
  if (std::strcmp(what, "choose") == 0) choose();
  if (std::strcmp(what, "fork") == 0) leave_a_child_alone();
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("waiting")
    (directory / "w.cpp").write_text(PROGRAM)
    flags = ("-std=c++17", "-O1", "-Wall", "-Werror", "-fopenmp", "-I", runtime.include_dir())
    run_command("g++", *flags, directory / "w.cpp", "-o", directory / "w")
    return directory / "w"


def unchosen() -> dict[str, str]:
    """The environment without what chooses how OpenMP's threads wait."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}


def said(program: Path, what: str, **environment: str) -> str:
    done = subprocess.run(
        [str(program), what], env={**unchosen(), **environment}, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_crowding_is_judged_by_windows_of_runs_and_supposed_until_the_first(program: Path) -> None:
    assert said(program, "judge") == "1100101"


def test_beside_threads_that_sleep_all_others_wait_shortly(program: Path) -> None:
    assert said(program, "wait") == "1"


def test_sleeping_threads_are_there_while_the_cpus_are_crowded(program: Path) -> None:
    """None for one thread; two at first; none once runs were quiet; again where they are not."""
    assert said(program, "choose") == "1 2 0 2"


@pytest.mark.parametrize("variable", ["OMP_WAIT_POLICY", pytest.param("GOMP_SPINCOUNT", marks=pytest.mark.large)])
def test_a_user_who_has_chosen_is_not_overruled(program: Path, variable: str) -> None:
    value = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "1000"}[variable]
    assert said(program, "choose", **{variable: value}) == "1 0 0 0"


ENGINE = """
import contextlib, os, sys, time
from pathlib import Path

from bolt_build.runtime.loader import Engine

def sleeping():
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.append((task / "comm").read_text())
    return names.count("bolt-sleeps\\n")

library, weights = map(Path, sys.argv[1:])
with Engine(library) as engine, engine.create(weights, threads=max(2, len(os.sched_getaffinity(0)))):
    for _ in range(60_000):  # threads begin in their own time
        if sleeping() == 2:
            print("two sleep")
            break
        time.sleep(0.001)
"""


def test_threads_of_an_engine_that_takes_all_cpus_wait_shortly_at_first(tiny_library: Path) -> None:
    """In a process of its own: an engine judges for all its models, and the tests before this one have run others."""
    program = (sys.executable, "-c", ENGINE, str(tiny_library), str(tiny_library.with_name("tiny.weights")))
    done = subprocess.run(program, env=unchosen(), capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "two sleep\n"


def test_a_child_of_fork_does_not_wait_for_threads_that_it_has_not(program: Path) -> None:
    assert said(program, "fork") == "7"

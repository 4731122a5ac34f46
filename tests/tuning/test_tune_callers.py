"""Sources that call the kernels of several problems: one problem's mistake is no other's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from families_layers import one
from gpu_harness import TARGET
from test_tune_tasks import context
from test_tuning_glue import FAMILIES, trials_of

from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.running.session import SessionResult
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.lockfile.fingerprint import TuningTools
from bolt_build.tuning.compile.candidates import compile_candidates
from bolt_build.tuning.compile.glue import grouped_sources
from bolt_build.tuning.compile.tasks import task_of

PROBLEMS = tuple(
    trials_of(one(name, Activation(name), (2, 8, 3, 3)), "portable", "f32/row", 1) for name in ("relu", "tanh", "erf")
)


@dataclass
class Compiler:
    """A session whose compiler refuses every source that has `word`; the names of what each run compiled."""

    word: str
    directory: Any
    context: Any = field(default_factory=context)
    runs: list[list[str]] = field(default_factory=list)

    def run(self, graph: Any, sources: Any, *, keep_going: bool) -> SessionResult:
        self.runs.append([Path(path).name for path, _ in sources])
        failed = tuple(
            TaskEvent(EventKind.FAILED, "h200", task_of(path), f"compile {path}", text="exit status 2", log="error: no")
            for path, text in sources
            if self.word in text
        )
        return SessionResult(False, failed, ())


def test_problems_of_a_family_are_called_from_one_source() -> None:
    (source,) = grouped_sources(PROBLEMS, FAMILIES, TARGET)
    assert source.problems == tuple(trials.problem.digest for trials in PROBLEMS)
    assert source.text.count("namespace problem_") == 2 * len(PROBLEMS)


def test_what_refuses_a_source_of_several_is_found_by_compiling_them_alone(tmp_path: Path) -> None:
    compiler = Compiler("function=tanh", SimpleNamespace(bundle=tmp_path / "bundle.json"))
    tools = TuningTools("13.0", "4.2", "-O3", "0" * 64)
    made = compile_candidates(compiler, PROBLEMS, FAMILIES, tools)  # type: ignore[arg-type]
    together, alone, linked = compiler.runs
    assert (len(together), len(alone)) == (1, 3)
    (record,) = made.not_compiled
    assert (record.problem, record.message) == (
        PROBLEMS[1].problem.digest, "the code that calls it does not compile: error: no",
    )  # fmt: skip
    assert made.bundle is not None
    assert [trials.problem for trials in made.bundle.problems] == [PROBLEMS[0].problem, PROBLEMS[2].problem]
    assert linked == [
        f"t_{PROBLEMS[0].problem.digest[:16]}.cu",
        f"t_{PROBLEMS[2].problem.digest[:16]}.cu",
        "candidates.cpp",
    ]

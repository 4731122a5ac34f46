"""What `bolt-build bench` measures: each batch, and each number of threads where that matters; alone or with peers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from build_graphs import plan_of, shell, write_plan
from test_bench_report import ENGINE, MISSING, comparison
from tiny_engine import tiny_plan

from bolt_build.bench.comparison import Comparison
from bolt_build.bench.contest import Contest
from bolt_build.bench.contestant import Effort
from bolt_build.build.files import FileStamp
from bolt_build.cli import bench, engines_here
from bolt_build.cli.main import main
from bolt_build.digest import decode, encode
from bolt_build.report.bench import render
from bolt_build.workflows.built import BuiltEngine

# Answers as a runner does, and notes how it was called.
RUNNER = """\
#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
echo '{"name": "toy", "target": "TARGET", "batch": 1, "threads": 0, "inputs": "random", "callers": 1, "rate": null,
"warmup_runs": 1, "runs": 7, "seconds": 0.5, "min_ms": 1.5, "median_ms": 2.0, "p90_ms": null, "p99_ms": null,
"max_ms": 3.0, "requests_per_second": 450.0, "images_per_second": 500.0, "copy_in_ms": null, "copy_out_ms": null,
"context_bytes": 4000, "resident_bytes": 5000, "began": 1.0, "ended": 1.5}'
"""
TASK = shell("nothing", "true", ())


def engine(root: Path, target: str) -> BuiltEngine:
    """An engine "toy" for `target`, of which there is only the runner."""
    directory = write_plan(root, TASK, target=target).target(target)
    plan = replace(plan_of((TASK,)), model=(FileStamp(str(root / "toy.onnx"), "", 0, 0, 0),))
    found = BuiltEngine(
        target, directory, replace(plan, graph=replace(plan.graph, target=target)), directory.path / "net.onnx"
    )
    found.runner.write_text(RUNNER.replace("TARGET", target))
    found.runner.chmod(0o755)
    return found


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[BuiltEngine, ...]:
    """Engines of a CPU and of a GPU, on a machine where both run."""
    both = (engine(tmp_path, "host"), engine(tmp_path, "t4"))
    recipe = SimpleNamespace(
        name="toy", path="toy.yaml", targets=(SimpleNamespace(name="host"), SimpleNamespace(name="t4")),
        model=SimpleNamespace(dims=(("side", 8),)), verify=SimpleNamespace(seed=5),
    )  # fmt: skip
    monkeypatch.setattr(bench, "read_recipes", lambda paths: [recipe])
    built = {engine.target: engine for engine in both}
    monkeypatch.setattr(
        engines_here, "built_engines", lambda recipe, options: tuple(built[name] for name in options.targets)
    )
    monkeypatch.setattr(engines_here, "why_not_here", lambda target: None)
    monkeypatch.setattr(bench, "_counter", lambda engine: "no energy: none here")
    return both


def calls(found: BuiltEngine) -> list[str]:
    return (found.directory.path / "calls").read_text().splitlines()


def test_threads_are_varied_only_where_runs_take_them(
    engines: tuple[BuiltEngine, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "toy.yaml", "--threads", "1", "--threads", "2", "--seconds", "0.5"]
    assert main(words) == 0
    on_cpu, on_gpu = engines
    each = "--bench --json --batch 1 --seconds 0.5"
    assert calls(on_cpu) == [f"{each} --threads 1", f"{each} --threads 2"]
    assert calls(on_gpu) == [each]
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["toy", "host", "1", "1", "2.000", "1.500", "500.0", "4.0", "kB", "7"],
        ["toy", "host", "1", "2", "2.000", "1.500", "500.0", "4.0", "kB", "7"],
        ["toy", "t4", "1", "-", "2.000", "1.500", "500.0", "4.0", "kB", "7"],
        ["no", "energy:", "none", "here"],
    ]


def test_every_load_is_measured(engines: tuple[BuiltEngine, ...]) -> None:
    """Callers with rates, on the given inputs."""
    words = [
        "--callers",
        "1",
        "--callers",
        "4",
        "--rate",
        "100",
        "--rate",
        "0.5",
        "--input",
        "x=x.npy",
        "--threads",
        "1",
    ]
    assert main(["bench", "toy.yaml", "--target", "host", *words]) == 0
    each = "--bench --json --batch 1 --seconds 3.0 --threads 1"
    assert calls(engines[0]) == [
        f"{each} --rate 100.0 --input x=x.npy", f"{each} --rate 0.5 --input x=x.npy",
        f"{each} --callers 4 --rate 100.0 --input x=x.npy", f"{each} --callers 4 --rate 0.5 --input x=x.npy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--against", "onnxruntime", "--callers", "2", "--input", "x.npy"],
            "peers have one caller, and all have the same seeded inputs\n  hint: leave --against out\n",
        ),
        (
            ["--rate", "0"],
            (
                "argument --rate: '0' is no number of requests a second above 0, at most a million\n"
                "'bolt-build bench --help' lists what it takes.\n"
            ),
        ),
    ],
)
def test_loads_that_cannot_be(
    engines: tuple[BuiltEngine, ...], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        assert main(["bench", "toy.yaml", *words]) == 2
    assert capsys.readouterr().err.endswith(said)


def test_without_threads_the_number_is_null_in_json(
    engines: tuple[BuiltEngine, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "toy.yaml", "--threads", "3", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["target"], row["threads"]) for row in rows] == [("host", 3), ("t4", None)]


def test_an_engine_that_cannot_run_here_keeps_no_other_from_being_measured(
    engines: tuple[BuiltEngine, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "this machine has no GPU that CUDA can use"
    monkeypatch.setattr(engines_here, "why_not_here", lambda target: reason if target.name == "t4" else None)
    assert main(["bench", "toy.yaml", "--threads", "1", "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert [row["target"] for row in json.loads(shown.out)] == ["host"]
    assert shown.err == f"toy/t4: not measured: {reason}\n"


def test_a_batch_that_an_engine_does_not_have(
    engines: tuple[BuiltEngine, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "toy.yaml", "--batch", "9"]) == 2
    assert capsys.readouterr().err == "error[unknown-batch]: toy has none of these batches\n  hint: it has: 1\n"


@pytest.fixture
def contests(engines: tuple[BuiltEngine, ...], monkeypatch: pytest.MonkeyPatch) -> list[Contest]:
    """The contests that were held, in place of them: the engine ran, and its peers are missing a package."""
    held: list[Contest] = []

    def compete(contest: Contest, say: Callable[[str], None]) -> Comparison:
        held.append(contest)
        say(f"batch 1: {contest.peers[0]} gets ready")
        return comparison(ENGINE, MISSING)

    plan = replace(tiny_plan(), name="toy")
    for engine in engines:
        engine.directory.engine.write_text(json.dumps(encode(plan)))
    monkeypatch.setattr("bolt_build.cli.bench.compete", compete)
    return held


def test_against_peers_every_batch_is_a_contest_with_all_threads(
    contests: list[Contest], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "toy.yaml", "--against", "torch, onnxruntime", "--seconds", "6", "--rounds", "2"]
    assert main([*words, "--format", "json"]) == 7
    assert [(held.peers, held.batches, held.threads) for held in contests] == [(("torch", "onnxruntime"), (1,), 0)] * 2
    assert [held.library.name for held in contests] == ["libtoy.so"] * 2
    assert contests[0].effort == Effort(rounds=2, runs=50, seconds=3.0)
    assert (contests[0].seed, contests[0].dims) == (5, (("side", 8),))
    shown = capsys.readouterr()
    assert decode(Comparison, json.loads(shown.out)[0]) == comparison(ENGINE, MISSING)
    assert shown.err == (
        "batch 1: torch gets ready\n" * 2
        + "error[missing-tool]: onnxruntime: onnxruntime cannot be imported (gone)\n  hint: pip install onnxruntime\n"
    )


def test_each_number_of_threads_is_a_contest_where_runs_take_them(contests: list[Contest]) -> None:
    main(["bench", "toy.yaml", "--against", "torch", "--threads", "1", "--threads", "2"])
    assert [held.threads for held in contests] == [1, 2, 0]


def test_the_table_is_for_people(contests: list[Contest], capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "toy.yaml", "--against", "torch"])
    assert capsys.readouterr().out == 2 * render(comparison(ENGINE, MISSING), color=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--against", "tensorflow"], "error[unknown-peer]: there is no peer 'tensorflow'\n"),
        (["--against", "torch", "--batch", "9"], "error[unknown-batch]: toy has none of these batches\n"),
    ],
)
def test_nothing_is_measured_where_the_question_is_wrong(
    words: list[str], said: str, contests: list[Contest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "toy.yaml", *words]) == 2
    assert capsys.readouterr().err.startswith(said)
    assert contests == []


@pytest.mark.parametrize("words", [["--against", " , "], ["--rounds", "0"]])
def test_nobody_and_never_are_no_answers(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["bench", "toy.yaml", *words])
    assert raised.value.code == 2
    assert "at least " in capsys.readouterr().err

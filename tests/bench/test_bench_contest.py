"""A contest on a real engine and real processes, against peers of every temper."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench_peers import installed
from installed_packages import install
from tiny_engine import tiny_plan

from bolt_build.bench.comparison import Comparison, Failed, Measured
from bolt_build.bench.contest import Contest, compete, inputs_of
from bolt_build.bench.contestant import Effort
from bolt_build.bench.opponent import Opponent
from bolt_build.bench.peers import all_peers
from bolt_build.digest import decode, encode
from bolt_build.dtypes import DType
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.bench import render
from bolt_build.runtime import names

ROOT = Path(__file__).resolve().parents[2]
QUICK = Effort(rounds=3, runs=7, seconds=0.05)
_PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def library(tiny_library: Path) -> Path:
    return tiny_library


@pytest.fixture(autouse=True)
def _peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)


def contest(library: Path, *peers: str, batches: tuple[int, ...] = (4,)) -> Contest:
    weights = library.with_name(names.weights("tiny"))
    return Contest(tiny_plan(), library, weights, Path("none.onnx"), (), 1, peers, batches, 1, QUICK)


def measured(comparison: Comparison, name: str) -> Measured:
    (found,) = (result for result in comparison.results if result.name == name)
    assert isinstance(found, Measured)
    return found


def failed(comparison: Comparison, name: str) -> Failed:
    (found,) = (result for result in comparison.results if result.name == name)
    assert isinstance(found, Failed)
    return found


def test_every_contestant_is_measured_at_every_batch_on_the_same_inputs(library: Path) -> None:
    said: list[str] = []
    comparison = compete(contest(library, "honest", batches=(1, 4)), said.append)
    assert [(result.batch, result.name) for result in comparison.results] == [
        (1, "engine"), (1, "honest"), (4, "engine"), (4, "honest"),
    ]  # fmt: skip
    for result in comparison.results:
        assert isinstance(result, Measured)
        assert result.runs == 3 * 7
        assert len(result.round_medians_ms) == 3
        assert 0 < result.min_ms <= result.median_ms
        assert result.p99_ms is None
        assert result.images_per_second == pytest.approx(1e3 * result.batch / result.median_ms)
        assert result.agrees
        assert result.agreement[0].cosine == pytest.approx(1.0)
    assert comparison.exit_code is ExitCode.OK
    assert comparison.threads == 1
    assert comparison.no_energy == "energy is only told of GPUs"
    assert decode(Comparison, encode(comparison)) == comparison
    assert said == [
        "batch 1: engine gets ready", "batch 1: honest gets ready", "batch 1: 3 rounds of engine, honest",
        "batch 4: engine gets ready", "batch 4: honest gets ready", "batch 4: 3 rounds of engine, honest",
    ]  # fmt: skip


def test_a_peer_that_computes_something_else_shows(library: Path) -> None:
    comparison = compete(contest(library, "liar", "misnamed", "misshapen"), lambda text: None)
    liar = measured(comparison, "liar")
    assert not liar.agrees
    assert liar.wrong is None
    assert liar.agreement[0].rms > 0.1
    assert measured(comparison, "misnamed").wrong == "it has no output 'y'"
    assert measured(comparison, "misshapen").wrong == "its output 'y' is [4, 14], the engine's [4, 15]"
    assert comparison.exit_code is ExitCode.VERIFY_FAILED


def test_a_peer_that_fails_is_a_result_and_the_others_are_measured(library: Path) -> None:
    comparison = compete(contest(library, "unwilling", "broken", "mortal", "tiring", "honest"), lambda text: None)
    assert failed(comparison, "unwilling").reason == "no batch of 4"
    assert failed(comparison, "broken").reason == "KeyError: 'x'"
    assert "about to break" in failed(comparison, "broken").log
    assert failed(comparison, "broken").log[-1] == "KeyError: 'x'"
    assert failed(comparison, "mortal").reason == "its process was ended by SIGKILL"
    assert failed(comparison, "tiring").reason == "RuntimeError: no more"
    assert measured(comparison, "honest").agrees
    assert comparison.exit_code is ExitCode.TASK_FAILED


def test_a_missing_package_is_said_once_and_not_looked_for_again(library: Path) -> None:
    said: list[str] = []
    comparison = compete(contest(library, "absent", "honest", batches=(1, 4)), said.append)
    absent = [result for result in comparison.results if result.name == "absent"]
    reason = "absent cannot be imported (No module named 'absent')"
    assert absent == [Failed("absent", batch, reason, True, "pip install absent", ()) for batch in (1, 4)]
    assert [text for text in said if "absent" in text] == ["batch 1: absent gets ready"]
    assert comparison.exit_code is ExitCode.TOOL_MISSING


def test_inputs_are_numbers_that_the_precision_has() -> None:
    """So that an fp16 peer is given no other inputs than an engine that takes them in f32."""
    (x,) = inputs_of(replace(tiny_plan(), precision="fp16"), batch=4, seed=1)
    assert (x.dtype, x.shape) == (np.float32, (4, 3, 5))
    assert np.array_equal(x, x.astype(np.float16))
    (finer,) = inputs_of(tiny_plan(), batch=4, seed=1)
    assert not np.array_equal(finer, x)
    np.testing.assert_allclose(finer, x, rtol=1e-3)
    (other,) = inputs_of(tiny_plan(), batch=4, seed=2)
    assert not np.array_equal(finer, other)


def test_whole_numbers_are_indices_that_lie_inside() -> None:
    plan = tiny_plan()
    (batch_plan,) = (each for each in plan.plans if each.batch == 4)
    (port,) = batch_plan.inputs
    tokens = replace(port.operand, format=replace(port.operand.format, dtype=DType.I64))
    whole = replace(batch_plan, inputs=(replace(port, operand=tokens),))
    (x,) = inputs_of(replace(plan, plans=(whole,)), batch=4, seed=1)
    assert (x.dtype, x.shape) == (np.int64, (4, 3, 5))
    assert set(x.ravel()) == {0, 1}  # nothing is indexed: any two numbers would do


def test_an_engine_that_does_not_run_ends_the_contest(library: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "tiny.weights"
    wrong.write_bytes(b"no weights")
    with pytest.raises(BoltError) as raised:
        compete(replace(contest(library, "honest"), weights=wrong), lambda text: None)
    assert raised.value.exit_code is ExitCode.TASK_FAILED
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.subject) == ("engine-failed", str(library))
    assert diagnostic.message.startswith("batch 4: EngineError: ")


def test_unknown_peers_are_all_named(library: Path) -> None:
    with pytest.raises(BoltError) as raised:
        compete(contest(library, "onnx", "honest", "engine"), lambda text: None)
    assert raised.value.exit_code is ExitCode.USAGE
    assert [diagnostic.message for diagnostic in raised.value.diagnostics] == [
        "there is no peer 'onnx'", "there is no peer 'engine'",
    ]  # fmt: skip
    assert (raised.value.diagnostics[0].hint or "").startswith(
        "peers: torch, torch-graph, torch-compile, torch-reduce-overhead, onnxruntime, absent, "
    )


def test_a_peer_that_cannot_be_used_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "more", monkeypatch, {}, {"peers": {"lost": "bench_peers:LOST"}})
    with pytest.raises(BoltError) as raised:
        all_peers()
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.message == (
        "the package more-of-it 1.0 cannot add its peer 'lost' (bench_peers:LOST):"
        " AttributeError: module 'bench_peers' has no attribute 'LOST'"
    )


def _interrupted(monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    """As by Ctrl-C, while the answer of that number is waited for."""
    whole, asked = Opponent._answer, itertools.count(1)

    def answered(opponent: Opponent) -> object:
        if next(asked) == answer:
            raise KeyboardInterrupt
        return whole(opponent)

    monkeypatch.setattr(Opponent, "_answer", answered)


@pytest.mark.large
def test_an_interrupt_leaves_the_turns_until_then(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second round, whose turns the peer begins, the engine is asked and not waited for: it is when it gives its
    outputs."""
    _interrupted(monkeypatch, 6)
    comparison = compete(contest(library, "honest"), lambda text: None)
    assert comparison.cut_off
    assert comparison.exit_code == ExitCode.INTERRUPTED
    assert measured(comparison, "engine").runs < measured(comparison, "honest").runs
    assert measured(comparison, "honest").agrees
    shown = render(comparison, color=False)
    assert "\ncut off: these are the turns until then\n" in shown
    assert decode(Comparison, encode(comparison)) == comparison


def test_a_peer_that_had_no_turn_is_not_measured(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _interrupted(monkeypatch, 4)
    comparison = compete(contest(library, "honest"), lambda text: None)
    assert measured(comparison, "engine").runs > 0
    assert failed(comparison, "honest").reason == "it was cut off before its first turn had ended"


@pytest.mark.large
def test_batches_that_were_done_are_kept(library: Path) -> None:
    """Without any, the interrupt goes on."""

    def say(text: str) -> None:
        if text == f"batch {last}: engine gets ready":
            raise KeyboardInterrupt

    last = 4
    comparison = compete(contest(library, "honest", batches=(1, 4)), say)
    assert comparison.cut_off
    assert {result.batch for result in comparison.results} == {1}
    last = 1
    with pytest.raises(KeyboardInterrupt):
        compete(contest(library, "honest", batches=(1, 4)), say)


def test_an_interrupt_ends_every_process(library: Path, tmp_path: Path) -> None:
    """The program is interrupted as by Ctrl-C while a peer gets ready; neither it nor the engine's process is left."""
    started = tmp_path / "started"
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path\nfrom test_bench_contest import compete, contest\n"
        f"compete(contest(Path({str(library)!r}), 'patient'), print)\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    environment = os.environ | {"BENCH_PEER_STARTED": str(started), "TMPDIR": str(folder)}
    environment["PYTHONPATH"] += "".join(f"{os.pathsep}{path}" for path in (ROOT, Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE) as running:
        try:
            _until(lambda: started.is_file() and started.read_text() != "")
            patient = int(started.read_text())
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=_PATIENCE_SECONDS)
        finally:
            running.kill()
    assert said.decode().rstrip().endswith("KeyboardInterrupt")
    assert not _alive(patient)
    assert list(folder.iterdir()) == []


@pytest.mark.large
def test_processes_end_with_a_program_that_is_killed(library: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = (
        "from pathlib import Path\nfrom test_bench_contest import compete, contest\n"
        f"compete(contest(Path({str(library)!r}), 'patient'), print)\n"
    )
    environment = os.environ | {"BENCH_PEER_STARTED": str(started), "TMPDIR": str(tmp_path)}
    environment["PYTHONPATH"] += "".join(f"{os.pathsep}{path}" for path in (ROOT, Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as running:
        try:
            _until(lambda: started.is_file() and started.read_text() != "")
        finally:
            running.kill()
    patient = int(started.read_text())
    _until(lambda: not _alive(patient))


def _until(holds: object) -> None:
    assert callable(holds)
    end = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, "it does not come to pass"
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    """True for a process that runs; one that has ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

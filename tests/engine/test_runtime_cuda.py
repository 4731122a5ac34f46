"""CUDA engines: what they ask of a machine, and on one that has it (`pytest -m gpu`) graphs, streams and errors."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from cuda_engine import build_changed, build_cuda_engine
from tiny_engine import tiny_constants, tiny_plan, tiny_reference

from bolt_build.emit.elf import read_elf
from bolt_build.graph.ir import Array
from bolt_build.runtime.loader import Context, Engine, EngineError, Model
from bolt_build.targets import all_targets
from bolt_build.toolchain.machine import found_gpus

CHANNELS = 5


def target_here() -> str:
    """The row of the GPU of this machine; without one that of the newest."""
    gpus = found_gpus()
    rows = [target for target in all_targets() if target.gpu is not None]
    fitting = [row.name for row in rows if gpus and row.gpu is not None and row.gpu.sm == gpus[0].sm]
    return [*fitting, "h200"][0]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = tiny_plan("tiny", target=target_here())
    return build_cuda_engine(tmp_path_factory.mktemp("cuda"), plan, tiny_constants())


@pytest.fixture
def model(library: Path) -> Iterator[Model]:
    with Engine(library) as engine, engine.create(library.with_name("tiny.weights")) as model:
        yield model


def sample(seed: int, batch: int = 4) -> Array:
    return np.random.RandomState(seed).standard_normal((batch, 3, CHANNELS)).astype(np.float32)


def expected(x: Array) -> Array:
    return tiny_reference(x, tiny_constants())


class Buffers:
    """Inputs and output of one context in the device's memory, through the engine's own functions."""

    def __init__(self, model: Model, x: Array) -> None:
        self.model, self.table = model, model.engine._table
        self.x, self.y = self._allocate(x.nbytes), self._allocate(x.nbytes)
        self.copy(self.x, x.ctypes.data, x.nbytes)
        self.shape = (x.shape[0], x.shape[1] * x.shape[2])

    def result(self) -> Array:
        found = np.empty(self.shape, np.float32)
        self.copy(found.ctypes.data, self.y, found.nbytes)
        return found

    def copy(self, to: int, source: int, nbytes: int) -> None:
        self.model.engine.check(self.table.copy(self.model._handle, to, source, nbytes, None))

    def close(self) -> None:
        for address in (self.x, self.y):
            self.table.release(self.model._handle, address)

    def _allocate(self, nbytes: int) -> int:
        made = ctypes.c_void_p()
        self.model.engine.check(self.table.allocate(self.model._handle, nbytes, ctypes.byref(made)))
        assert made.value is not None
        return made.value


def free_memory() -> int:
    """Free bytes of the GPU's memory, as the driver says."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value


def streams(count: int) -> Sequence[int]:
    """New streams of the current device."""
    cuda = ctypes.CDLL("libcuda.so.1")
    made = [ctypes.c_void_p() for _ in range(count)]
    for stream in made:
        assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return [stream.value or 0 for stream in made]


def test_the_library_needs_nothing_but_the_system_and_exports_one_symbol(library: Path) -> None:
    facts = read_elf(library)
    assert facts.exported == ("tiny_bolt_v1",)
    allowed = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
    allowed |= {"libdl.so.2", "librt.so.1", "libpthread.so.0"}  # parts of libc.so.6 of their own before glibc 2.34
    assert set(facts.needed) <= allowed


def test_ports_live_on_the_device(library: Path) -> None:
    engine = Engine(library)
    assert [port.where for port in (*engine.inputs(1), *engine.outputs(4))] == ["cuda", "cuda"]


@pytest.mark.skipif(bool(found_gpus()), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_gets_a_sentence(library: Path) -> None:
    with pytest.raises(
        EngineError, match=r"^(no NVIDIA driver is installed|there is no GPU that CUDA can use)"
    ) as caught:
        Engine(library).create(library.with_name("tiny.weights"))
    assert caught.value.status == 4


@pytest.mark.skipif(bool(found_gpus()), reason="this machine has a GPU")
def test_the_runner_says_so_too(library: Path) -> None:
    done = subprocess.run([library.with_name("tiny-run"), "--bench"], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith(("tiny-run: no NVIDIA driver", "tiny-run: there is no GPU"))


@pytest.mark.gpu
def test_a_gpu_that_is_not_there_is_refused(library: Path) -> None:
    count = len(found_gpus())
    with pytest.raises(EngineError, match=rf"^GPU {count} does not exist: CUDA sees {count}, counted from 0"):
        Engine(library).create(library.with_name("tiny.weights"), device=count)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"sm_', '"sm_9', r"compute capability \d+\.\d\) cannot run this engine, which was built for 9\d+\.\d"),
        ("    128,\n", "    1LL << 60,\n", r"too small: it has \d+ bytes of memory, this engine needs more than \d+ "),
    ],
)
def test_a_gpu_that_is_too_old_or_too_small_is_refused(
    library: Path, tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    changed = build_changed(library, tiny_plan("tiny", target=target_here()), tmp_path, old, new)
    with pytest.raises(EngineError, match=sentence) as caught:
        Engine(changed).create(tmp_path / "tiny.weights")
    assert caught.value.status == 4


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("staged", [False, True])
def test_results_are_right_run_after_run(model: Model, batch: int, staged: bool) -> None:
    with model.context(batch, staged) as context:
        for seed in range(3):
            x = sample(seed, batch)
            np.testing.assert_array_equal(context.run({"x": x})["y"], expected(x))


@pytest.mark.gpu
@pytest.mark.parametrize("queueing", [1, 2, 3])
@pytest.mark.parametrize("staged", [False, True])
def test_results_are_right_however_kernels_are_queued(model: Model, queueing: int, staged: bool) -> None:
    with model.context(4, staged, queueing=queueing) as context:
        for seed in range(3):
            x = sample(seed)
            np.testing.assert_array_equal(context.run({"x": x})["y"], expected(x))


@pytest.mark.gpu
def test_an_observed_run_shows_every_tensor(model: Model) -> None:
    x, seen = sample(1), {}
    with model.context(4) as context:
        result = context.run_observed({"x": x}, lambda step, name, array: seen.update({name: array}))
        np.testing.assert_array_equal(result["y"], context.run({"x": x})["y"])
    np.testing.assert_array_equal(seen["scaled"], x * tiny_constants()[0])
    np.testing.assert_array_equal(seen["y"], expected(x))


@pytest.mark.gpu
def test_a_replay_follows_changed_pointers(model: Model) -> None:
    data = [sample(seed) for seed in range(3)]
    buffers = [Buffers(model, x) for x in data]
    with model.context(4) as context:
        for _ in range(3):
            for used in buffers:
                context.run_on([used.x], [used.y])
        model.wait()
        for used, x in zip(buffers, data, strict=True):
            np.testing.assert_array_equal(used.result(), expected(x))
            used.close()


@pytest.mark.gpu
def test_staged_contexts_take_memory_of_the_cpu(model: Model) -> None:
    x = sample(5)
    y = np.zeros((4, 15), np.float32)
    with model.context(4, staged=True) as context:
        context.run_on([x.ctypes.data], [y.ctypes.data])
        model.wait()
    np.testing.assert_array_equal(y, expected(x))


@pytest.mark.gpu
def test_contexts_on_streams_of_their_own_run_at_once(model: Model) -> None:
    wrong: list[int] = []

    def work(seed: int, stream: int) -> None:
        x = sample(seed)
        used = Buffers(model, x)
        with model.context(4) as context:
            for _ in range(500):
                context.run_on([used.x], [used.y], stream)
            model.wait(stream)
            if not np.array_equal(used.result(), expected(x)):
                wrong.append(seed)
        used.close()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(streams(4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.gpu
def test_ten_thousand_runs_take_no_memory(model: Model) -> None:
    buffers = [Buffers(model, sample(seed)) for seed in range(2)]

    def run(context: Context, times: int) -> None:
        for index in range(times):
            used = buffers[index % 2] if index % 100 == 0 else buffers[0]
            context.run_on([used.x], [used.y])
        model.wait()

    with model.context(4) as context:
        run(context, 200)
        before = free_memory()
        run(context, 10_000)
        assert free_memory() == before
    for used in buffers:
        used.close()


@pytest.mark.gpu
def test_a_caller_who_records_a_graph_gets_the_kernels_in_it(model: Model) -> None:
    torch = pytest.importorskip("torch")
    data = [torch.from_numpy(sample(seed)).cuda() for seed in range(2)]
    x, y = data[0].clone(), torch.zeros((4, 15), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with model.context(4) as context:
        with torch.cuda.graph(graph):
            context.run_on([x.data_ptr()], [y.data_ptr()], torch.cuda.current_stream().cuda_stream)
        for given in data:
            x.copy_(given)
            graph.replay()
            np.testing.assert_array_equal(y.cpu().numpy(), expected(given.cpu().numpy()))
        # What was recorded is the caller's: a run on the same buffers is a recording of the context's own.
        context.run_on([x.data_ptr()], [y.data_ptr()])
        model.wait()
        np.testing.assert_array_equal(y.cpu().numpy(), expected(data[1].cpu().numpy()))


@pytest.mark.gpu
def test_two_engines_work_in_one_process(model: Model, tmp_path: Path) -> None:
    constants = tiny_constants(scale=-3.0, shift=0.5)
    other = build_cuda_engine(tmp_path, tiny_plan("other", target=target_here()), constants)
    x = sample(9)
    with Engine(other) as engine, engine.create(tmp_path / "other.weights") as second:
        a, b = model.context(4), second.context(4)
        for _ in range(3):
            np.testing.assert_array_equal(a.run({"x": x})["y"], expected(x))
            np.testing.assert_array_equal(b.run({"x": x})["y"], tiny_reference(x, constants))


@pytest.mark.gpu
def test_every_step_has_a_time_of_its_own(model: Model) -> None:
    with model.context(4) as context:
        seconds = context.step_seconds({"x": sample(0)})
    assert len(seconds) == 4
    assert all(0 <= second < 1e-3 for second in seconds)


@pytest.mark.gpu
def test_a_device_error_sticks_to_the_context(library: Path) -> None:
    # In a process of its own: after such an error CUDA refuses everything else there.
    program = f"""
import numpy as np
from pathlib import Path
from bolt_build.runtime.loader import Engine, EngineError
engine = Engine(Path({str(library)!r}))
model = engine.create(Path({str(library.with_name("tiny.weights"))!r}))
context = model.context(1)
x = np.full((1, 3, {CHANNELS}), np.nan, np.float32)
for attempt in range(3):
    try:
        context.run({{"x": x}}) if attempt == 0 else context.run_on([256], [256])
    except EngineError as error:
        print(error.status, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["5", "5", "5"], done.stderr
    assert "an illegal memory access was encountered (cudaErrorIllegalAddress)" in lines[0]
    assert lines[2] == "5 an earlier run of this context failed: destroy it and make another (device error)"

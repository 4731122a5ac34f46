"""Runs, verifies and times built CUDA engines on a GPU, and leaves one JSON file.

ENGINES is a folder of target directories as a build leaves them (`generated/<recipe>/<target>`), built anywhere. Of
each, the library, the runner, `engine.json`, `recipe.json` and `selection.json` are enough: a zoo model (or what
`source.json` of `gpu_models.py` names) is written again beside them, and the weights by the build's own action. Each
engine has a process of its own, so that one that fails takes no other along.

    bolt-build recipes/resnet50.yaml --target h200
    python benchmarks/correctness/gpu_checks.py generated/resnet50 out.json --peers resnet50 \\
        --peer-batches 32 --sanitize resnet50

Needs torch (buffers, streams, events) and onnxruntime (the reference).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.correctness import gpu_models
from benchmarks.correctness.sanitizers import sanitize

RUNS = 200
ENDURANCE_RUNS = 10_000
REPLAYS = 20_000


def worker(directory: Path, checks: list[str]) -> dict[str, Any]:
    """Every check of one engine; a check that fails is a "failed" entry and ends none of the others."""
    engine = PreparedEngine(directory)
    available: dict[str, Callable[[], Any]] = {
        "verify": lambda: verify(engine),
        "time": lambda: {str(batch): time_batch(engine, batch) for batch in engine.batches},
        "pointers": lambda: changed_pointers(engine),
        "streams": lambda: two_streams(engine),
        "endurance": lambda: endurance(engine),
        "replays": lambda: {str(batch): replays(engine, batch) for batch in engine.batches},
    }
    found: dict[str, Any] = {"name": engine.plan.name, "target": engine.plan.target, "weights_s": engine.weights_s}
    for name in checks:
        started = time.time()
        try:
            found[name] = available[name]()
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc(limit=8)}
        print(f"{engine.plan.name}: {name} {time.time() - started:.1f} s", flush=True)
    return found


class PreparedEngine:
    """An engine's directory with the model and the weights in it, and its plan."""

    def __init__(self, directory: Path) -> None:
        import onnx

        from bolt_build.build.planning.engine_file import read_engine
        from bolt_build.digest import decode
        from bolt_build.graph import zoo
        from bolt_build.runtime import names
        from bolt_build.schema.recipe import Recipe

        self.directory = directory
        self.plan = read_engine((directory / "engine.json").read_text())
        self.recipe = decode(Recipe, json.loads((directory / "recipe.json").read_text()))
        self.library = directory / names.library(self.plan.name)
        self.weights = directory / names.weights(self.plan.name)
        # The name of the file is that of the graph, which the engine's layout digest covers.
        self.model = directory / Path(self.recipe.model.onnx or "model.onnx").name
        self.batches = tuple(batch.batch for batch in self.plan.plans)
        started = time.time()
        if not self.model.is_file():
            source = directory / "source.json"
            if source.is_file():
                onnx.save(gpu_models.model_of(json.loads(source.read_text())), str(self.model))
            else:
                zoo.write(self.recipe.model.zoo, self.model)
        if not self.weights.is_file():
            self._write_weights()
        self.weights_s = round(time.time() - started, 2)

    def _write_weights(self) -> None:
        from bolt_build.build.planning.engine_from_model import parse, plan_parsed
        from bolt_build.digest import decode
        from bolt_build.emit.weights import write_weights
        from bolt_build.planner.selection import Selection
        from bolt_build.targets import target_named

        spec = next(spec for spec in self.recipe.targets if spec.name == self.plan.target)
        selection = decode(Selection, json.loads((self.directory / "selection.json").read_text()))
        planned = plan_parsed(parse(self.model), self.recipe, spec, target_named(self.plan.target), selection)
        if planned.plan.layout_digest != self.plan.layout_digest:
            sys.exit(f"{self.model} is not the model of the engine in {self.directory}")
        write_weights(self.weights, self.plan, planned.constants)

    def open(self) -> Any:
        """The engine's model, on GPU 0."""
        from bolt_build.runtime.loader import Engine

        return Engine(self.library).create(self.weights)


class Bound:
    """A context with tensors of torch's for its ports."""

    def __init__(self, model: Any, batch: int, seed: int) -> None:
        import torch

        self.context = model.context(batch)
        random = torch.Generator(device="cuda").manual_seed(seed)
        self.inputs = [self._filled(port, random) for port in self.context.inputs]
        self.outputs = [torch.empty(port.nbytes, dtype=torch.uint8, device="cuda") for port in self.context.outputs]
        for output in self.outputs:
            output.fill_(0xFF)  # NaN: what is not written shows

    @staticmethod
    def _filled(port: Any, random: Any) -> Any:
        import torch

        kinds = {"f16": torch.half, "f32": torch.float, "bf16": torch.bfloat16}
        if port.dtype.value not in kinds:
            return torch.zeros(port.nbytes, dtype=torch.uint8, device="cuda")
        return torch.randn(port.stored_shape, generator=random, device="cuda").to(kinds[port.dtype.value])

    def run(self, stream: int | None = None) -> None:
        addresses = ([t.data_ptr() for t in self.inputs], [t.data_ptr() for t in self.outputs])
        self.context.run_on(*addresses, stream)

    def results(self) -> list[Any]:
        return [output.clone() for output in self.outputs]


def verify(engine: PreparedEngine) -> dict[str, Any]:
    """The build's own verification, layer by layer against onnxruntime; its figures, and the worst layers."""
    from bolt_build.verify import verify_engine

    report = verify_engine(
        engine.library, engine.weights, engine.model, engine.plan, engine.recipe.verify, engine.recipe.model.dims
    )
    batches = {}
    for batch in report.batches:
        worst = sorted(batch.layers, key=lambda layer: layer.used, reverse=True)[:3]
        batches[str(batch.batch)] = {
            "ok": batch.ok,
            "repeatable": batch.repeatable,
            "layers": len(batch.layers),
            "layers_ok": sum(layer.ok for layer in batch.layers),
            "outputs": [
                {
                    "name": output.name, "cosine": output.cosine, "cosine_centred": output.cosine_centred,
                    "dependence": output.dependence, "error": output.error, "rms": output.rms, "ok": output.ok,
                }
                for output in batch.outputs
            ],
            "worst_layers": [
                {"layer": layer.name, "kernel": layer.kernel, "used": layer.used, "rms": layer.rms} for layer in worst
            ],
        }  # fmt: skip
    problems = [f"{problem.code}: {problem.message}" for problem in report.problems]
    return {"ok": report.ok, "against": report.against, "batches": batches, "problems": problems}


def time_batch(engine: PreparedEngine, batch: int) -> dict[str, Any]:
    """Milliseconds of a graph replay by device events, and of each step alone; inputs are random."""
    import numpy as np
    import torch

    with engine.open() as model:
        bound = Bound(model, batch, seed=1)
        stream = torch.cuda.Stream()
        handle = stream.cuda_stream
        for _ in range(20):
            bound.run(handle)
        stream.synchronize()
        each = []
        for _ in range(RUNS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            bound.run(handle)
            end.record(stream)
            end.synchronize()
            each.append(begin.elapsed_time(end))
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        for _ in range(RUNS):
            bound.run(handle)
        end.record(stream)
        end.synchronize()
        feeds = {
            port.name: np.random.RandomState(1).standard_normal(port.shape).astype(port.numpy_dtype)
            for port in bound.context.inputs
        }
        held = bound.context.nbytes
        alone = [1e3 * seconds for seconds in bound.context.step_seconds(feeds)]
    (plan,) = (plan for plan in engine.plan.plans if plan.batch == batch)
    steps = [
        {"step": step.name, "kernel": step.candidate.family, "parameters": dict(step.candidate.parameters), "ms": ms}
        for step, ms in zip(plan.steps, alone, strict=True)
        if not step.view
    ]
    kernels = sum(row["ms"] for row in steps)
    median = statistics.median(each)
    return {
        "replay_ms": median,
        "replay_min_ms": min(each),
        "back_to_back_ms": begin.elapsed_time(end) / RUNS,
        "kernels_alone_ms": kernels,
        "replay_over_kernels": median / kernels,
        "images_per_second": 1e3 * batch / median,
        "context_bytes": held,
        "steps": steps,
    }


def changed_pointers(engine: PreparedEngine) -> dict[str, Any]:
    """One context, three sets of buffers in turn: each result must be that of a context of its own, bit by bit."""
    import torch

    with engine.open() as model:
        batch = engine.batches[0]
        sets = [Bound(model, batch, seed) for seed in range(3)]
        for bound in sets:
            bound.run()
        torch.cuda.synchronize()
        expected = [bound.results() for bound in sets]
        shared = sets[0].context
        wrong = 0
        for _ in range(5):
            for bound, results in zip(sets, expected, strict=True):
                for output in bound.outputs:
                    output.fill_(0xFF)
                torch.cuda.synchronize()
                addresses = ([t.data_ptr() for t in bound.inputs], [t.data_ptr() for t in bound.outputs])
                shared.run_on(*addresses, None)
                model.wait()
                wrong += sum(not torch.equal(a, b) for a, b in zip(bound.outputs, results, strict=True))
        distinct = not torch.equal(expected[0][0], expected[1][0])
    return {"ok": wrong == 0 and distinct, "replays": 15, "wrong": wrong, "inputs_tell_apart": distinct}


def two_streams(engine: PreparedEngine) -> dict[str, Any]:
    """Two contexts, each on a stream and a thread of its own, at once: results as when alone."""
    import torch

    with engine.open() as model:
        batch = engine.batches[0]
        bounds = [Bound(model, batch, seed) for seed in range(2)]
        streams = [torch.cuda.Stream() for _ in bounds]
        for bound in bounds:
            bound.run()
        torch.cuda.synchronize()
        expected = [bound.results() for bound in bounds]
        wrong = [0, 0]

        def work(index: int) -> None:
            for _ in range(20):
                for _ in range(20):
                    bounds[index].run(streams[index].cuda_stream)
                streams[index].synchronize()
                same = zip(bounds[index].outputs, expected[index], strict=True)
                wrong[index] += sum(not torch.equal(a, b) for a, b in same)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {"ok": sum(wrong) == 0, "runs": 800, "wrong": sum(wrong)}


def endurance(engine: PreparedEngine) -> dict[str, Any]:
    """Memory of the GPU and of the process before and after 10,000 runs; pointers change in one of a hundred."""
    import torch

    with engine.open() as model:
        bounds = [Bound(model, engine.batches[0], seed) for seed in range(2)]
        shared = bounds[0].context

        def run(times: int) -> None:
            for index in range(times):
                bound = bounds[1 if index % 100 == 99 else 0]
                shared.run_on([t.data_ptr() for t in bound.inputs], [t.data_ptr() for t in bound.outputs], None)
                if index % 500 == 0:
                    model.wait()
            model.wait()

        run(500)
        before = torch.cuda.mem_get_info()[0], resident_bytes()
        run(ENDURANCE_RUNS)
        after = torch.cuda.mem_get_info()[0], resident_bytes()
    device, host = before[0] - after[0], after[1] - before[1]
    return {"ok": device <= 0 and host < 1 << 20, "runs": ENDURANCE_RUNS, "device_growth": device, "host_growth": host}


def replays(engine: PreparedEngine, batch: int) -> dict[str, Any]:
    """One run 20,000 times: every result must be the first one, bit by bit. A race that is rarely lost shows here."""
    import torch

    with engine.open() as model:
        bound = Bound(model, batch, seed=0)
        bound.run()
        torch.cuda.synchronize()
        first = bound.results()
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(REPLAYS):
            for output in bound.outputs:
                output.fill_(0xFF)
            bound.run()
            for output, result in zip(bound.outputs, first, strict=True):
                wrong += (output != result).any()
        found = int(wrong.item())
    return {"ok": found == 0, "replays": REPLAYS, "wrong": found}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peers(models: str, batches: str) -> dict[str, Any]:
    """What a PyTorch user would run instead, on this GPU, now."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "peers.json"
        script = ROOT / "benchmarks" / "peers" / "torch_peers.py"
        environment = {**os.environ, "MODELS": models, "BATCHES": batches}
        done = subprocess.run([sys.executable, str(script), str(out)], env=environment, check=False)
        found: dict[str, Any] = json.loads(out.read_text()) if done.returncode == 0 else {"exit": done.returncode}
    return found


def gpu_facts() -> dict[str, Any]:
    import torch

    facts = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {"gpu": facts.name, "multiprocessors": facts.multi_processor_count, "driver": driver.stdout.strip()}


def run_worker(directory: Path, checks: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, __file__, str(directory), str(out), "--worker", "--checks", checks]
        done = subprocess.run(command, check=False)
        if done.returncode != 0:
            return {"failed": f"exit status {done.returncode}"}
        found: dict[str, Any] = json.loads(out.read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--checks", default="verify,time,pointers,streams,endurance")
    parser.add_argument("--sanitize", default="", help="engines to run under compute-sanitizer, comma-separated")
    parser.add_argument("--sanitizers", default="memcheck,racecheck,initcheck,synccheck", help="tools to do it with")
    parser.add_argument("--peers", default="", help="torchvision models to time beside, comma-separated")
    parser.add_argument("--peer-batches", default="1,32")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        arguments.out.write_text(json.dumps(worker(arguments.engines, arguments.checks.split(","))))
        return
    result: dict[str, Any] = {**record.environment("torch", "onnxruntime", "numpy"), **gpu_facts(), "engines": {}}
    directories = sorted(path.parent for path in arguments.engines.resolve().glob("**/engine.json"))

    def save() -> None:
        record.save(arguments.out, result)

    for directory in directories:
        found = run_worker(directory, arguments.checks)
        if found.get("name") in arguments.sanitize.split(","):
            plans = PreparedEngine(directory).plan.plans
            found["sanitizers"] = sanitize(directory, plans, arguments.sanitizers.split(","))
        result["engines"][f"{found.get('name', directory.name)}/{found.get('target', '')}"] = found
        save()
    if arguments.peers:
        result["peers"] = peers(arguments.peers, arguments.peer_batches)
    save()


if __name__ == "__main__":
    main()

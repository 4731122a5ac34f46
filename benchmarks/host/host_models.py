"""Engines of the CPU beside onnxruntime: models of many kinds, each exported with drawn weights and built as a
stranger's is.

    python benchmarks/host/host_models.py FOLDER export    # where torch and the models' packages are
    python benchmarks/host/host_models.py FOLDER build     # where bolt-build[host,verify] is: engines, each verified
    python benchmarks/host/host_models.py FOLDER pack      # leaves what `measure` needs, to take it elsewhere
    python benchmarks/host/host_models.py FOLDER measure   # numpy and onnxruntime alone: again until no row is left
    python benchmarks/host/host_models.py FOLDER close     # writes results/host_models.json

Both sides have the same file, inputs and number of threads, in turns of one process; buffers are bound once, outputs
are compared. A turn begins when threads of the other side sleep, and with runs that do not count. `measure --only
NAME,NAME` takes some rows, `--seconds` says how long both sides of a row run with one number of threads, `--out FILE`
writes the result there.

Values of weights repeat after some thousand, so that files of hundreds of megabytes travel as a few.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from bolt_build.bench.turns import order

PERIOD = 4093
"""A prime: rows of a matrix begin with other values."""
EXPORTER = ROOT / "benchmarks" / "exporters" / "export_torch.py"
SLEEP = 0.01
"""Seconds after which threads that wait for work sleep, on either side."""
TURNS, LEAST_TURNS = 8, 3


@dataclass(frozen=True)
class Row:
    """`source`: what `export_torch.py` calls the model; `kind`: what a reader calls it."""

    source: str
    kind: str
    batch: int = 1

    @property
    def name(self) -> str:
        return self.source.partition(".")[2].lower() + ("" if self.batch == 1 else f"_b{self.batch}")


ROWS = (
    Row("torchvision.resnet50", "residual blocks"),
    Row("torchvision.mobilenet_v2", "inverted residuals"),
    Row("torchvision.mobilenet_v2", "inverted residuals", 8),
    Row("torchvision.mobilenet_v3_small", "gates, hard-swish"),
    Row("torchvision.efficientnet_b0", "gates, SiLU"),
    Row("torchvision.efficientnet_b0", "gates, SiLU", 8),
    Row("torchvision.densenet121", "concatenations"),
    Row("torchvision.regnet_y_400mf", "groups, gates"),
    Row("torchvision.shufflenet_v2_x1_0", "shuffled channels"),
    Row("timm.mobilenetv4_conv_small", "inverted bottlenecks"),
    Row("timm.convnextv2_atto", "7x7 depthwise, norms"),
    Row("timm.mobilevitv2_050", "convolutions and attention"),
    Row("module.unet", "U-Net, upsampling"),
    Row("module.unet_3d", "volumes"),
    Row("module.esrgan", "super-resolution"),
    Row("module.yolo_v8", "detection"),
    Row("module.center_net", "detection, greatest first"),
    Row("module.crnn", "LSTM over an image"),
    Row("module.demucs", "LSTM inside a sound U-Net"),
    Row("module.deep_speech", "recurrent speech"),
    Row("module.conv_tasnet", "dilated sound"),
    Row("module.wavenet", "gated dilated sound"),
    Row("module.diffusion", "denoising U-Net"),
    Row("sized.bert_base_2_layers", "BERT"),
    Row("sized.electra_small", "narrow BERT"),
    Row("timm.deit_tiny_patch16_224", "vision transformer"),
    Row("timm.xcit_nano_12_p16_224", "attention of channels"),
    Row("transformers.DebertaV2", "gathered relative positions"),
    Row("transformers.Llama", "rotary embedding, RMSNorm"),
    Row("transformers.T5Whole", "encoder and decoder"),
    Row("transformers.Whisper", "sound encoder"),
    Row("transformers.Wav2Vec2Conformer", "conformer"),
)
"""Of these BERT, MobileNet, EfficientNet, DenseNet and ResNet-50 are recipes' too. Encoders of transformers are small
configurations, and BERT has two of its twelve layers."""


def export(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Writes the ONNX files that are not there yet."""
    for row in rows:
        file = arguments.folder / f"{row.name}.onnx"
        if file.is_file():
            continue
        made = file.with_suffix(".made")
        words = [sys.executable, str(EXPORTER), row.source, "ts17", str(made), str(row.batch)]
        said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
        print(f"{row.name}: {said}", flush=True)
        if made.is_file():
            repeat(made)
            os.replace(made, file)
    return 0 if all((arguments.folder / f"{row.name}.onnx").is_file() for row in rows) else 1


def repeat(path: Path) -> None:
    """Repeats the first values of every large tensor of weights."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    tensors = [*model.graph.initializer]
    tensors += [each.t for node in model.graph.node for each in node.attribute if each.name == "value"]
    for tensor in tensors:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > PERIOD:
            repeated = np.resize(values.reshape(-1)[:PERIOD], values.shape)
            tensor.CopyFrom(numpy_helper.from_array(repeated, tensor.name))
    onnx.save(model, path)


def build(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Builds and verifies the engines that are not there yet."""
    wrong = 0
    for row in rows:
        recipe = arguments.folder / f"{row.name}.yaml"
        if (arguments.folder / "generated" / row.name / "host" / "verify.json").is_file():
            continue
        recipe.write_text(
            f"bolt: 1\nmodel: {{onnx: {row.name}.onnx}}\ntargets: {{host: {{}}}}\nverify: {{samples: 1}}\n"
        )
        words = ["build", str(recipe), "--target", "host", "--output", str(arguments.folder / "generated")]
        ran = subprocess.run([sys.executable, "-m", "bolt_build", *words], check=False, capture_output=True, text=True)
        last = (ran.stdout + ran.stderr).strip().splitlines()[-1:]
        print(row.name, ran.returncode, *last, flush=True)
        wrong += ran.returncode != 0
    return 1 if wrong else 0


def pack(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Makes of each engine a folder with library, weights and model, in `FOLDER/packed`; libraries of others are there
    once."""
    packed = arguments.folder / "packed"
    packed.mkdir(exist_ok=True)
    for row in rows:
        made, into = arguments.folder / "generated" / row.name / "host", packed / row.name
        into.mkdir(exist_ok=True)
        shutil.copy(made / f"{row.name}.weights", into)
        shutil.copy(arguments.folder / f"{row.name}.onnx", into / "model.onnx")
        library = into / f"lib{row.name}.so"
        subprocess.run(["strip", "--strip-debug", str(made / library.name), "-o", str(library)], check=True)
        for needed in ("libdnnl.so.3", "libgomp.so.1"):
            if not (packed / needed).is_file():
                shutil.copy(made / needed, packed)
            (into / needed).unlink(missing_ok=True)
            (into / needed).symlink_to(f"../{needed}")
    return 0


def measure(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Times the rows that are not there yet, each in a process of its own."""
    left, end = [], time.monotonic() + arguments.budget
    for row in rows:
        found = arguments.folder / "rows" / f"{row.name}.json"
        if not found.is_file() and time.monotonic() < end:
            words = ["row", "--only", row.name]
            words += ["--seconds", str(arguments.seconds), "--threads", arguments.threads]
            subprocess.run([sys.executable, __file__, str(arguments.folder), *words], check=False)
        if not found.is_file():
            left.append(row.name)
    print("rows left:", ", ".join(left) or "none")
    return 1 if left else 0


def one_row(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    (row,) = rows
    home = arguments.folder / "packed" / row.name
    counts = [int(each) for each in arguments.threads.split(",")] if arguments.threads else [1, 0]
    cores = len(os.sched_getaffinity(0))
    contests = [contest(home, row, count or cores, arguments.seconds) for count in counts]
    found = {"model": row.name, "kind": row.kind, "batch": row.batch, "contests": contests}
    (arguments.folder / "rows").mkdir(exist_ok=True)
    environment = record.environment("onnxruntime", "numpy")
    record.save(arguments.folder / "rows" / f"{row.name}.json", {"environment": environment, **found})
    print(json.dumps(found), flush=True)
    return 0


def inputs_of(ports: Sequence[Any]) -> dict[str, Any]:
    """Seeded inputs: normal numbers, small indices, masks that let all through."""
    random = np.random.RandomState(0)
    drawn: dict[str, Callable[[Any], Any]] = {
        "f": lambda port: random.standard_normal(port.shape),
        "i": lambda port: random.randint(1, 8, port.shape),
        "u": lambda port: random.randint(1, 8, port.shape),
        "b": lambda port: np.ones(port.shape),
    }
    return {port.name: drawn[np.dtype(port.numpy_dtype).kind](port).astype(port.numpy_dtype) for port in ports}


def contest(home: Path, row: Row, threads: int, seconds: float) -> dict[str, Any]:
    """Medians of both sides in milliseconds, of wall time and of the CPU time of the process, and how far outputs are
    from each other."""
    import onnxruntime

    from bolt_build.runtime.loader import Engine

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(home / "model.onnx"), options, providers=["CPUExecutionProvider"])
    weights = home / f"{row.name}.weights"
    with (
        Engine(home / f"lib{row.name}.so") as engine,
        engine.create(weights, threads=threads) as model,
        model.context(row.batch) as context,
    ):
        given = inputs_of(context.inputs)
        fed = {each.name: given[each.name] for each in session.get_inputs()}
        made, expected = context.run(given), session.run(None, fed)
        binding = session.io_binding()
        for each in session.get_inputs():
            binding.bind_cpu_input(each.name, fed[each.name])
        for each in session.get_outputs():
            binding.bind_output(each.name, "cpu")
        held = [aligned(port.to_stored(given[port.name])) for port in context.inputs]
        results = [aligned(np.zeros(port.nbytes, np.uint8)) for port in context.outputs]
        addresses = [each.ctypes.data for each in held], [each.ctypes.data for each in results]
        sides = {
            "engine": lambda: context.run_on(*addresses),
            "onnxruntime": lambda: session.run_with_iobinding(binding),
        }
        wall, cpu = in_turns(sides, seconds)
    names = [each.name for each in session.get_outputs()]
    return {
        "threads": threads,
        **{f"{name}_ms": round(statistics.median(times), 4) for name, times in wall.items()},
        **{f"{name}_cpu_ms": round(statistics.median(times), 4) for name, times in cpu.items()},
        "runs": len(wall["engine"]),
        "difference": max(difference(made[name], each) for name, each in zip(names, expected, strict=True)),
    }


def aligned(array: Any) -> Any:
    """The same bytes at the beginning of a line of a cache."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    memory = np.zeros(flat.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    memory[begin : begin + flat.nbytes] = flat
    return memory[begin : begin + flat.nbytes]


def in_turns(
    sides: dict[str, Callable[[], Any]], seconds: float
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds of each run, wall and CPU, by side."""
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    share, end, turn = seconds / (2 * TURNS), time.perf_counter() + seconds, 0
    while turn < LEAST_TURNS or time.perf_counter() < end:
        for name in order(tuple(sides), turn):
            time.sleep(SLEEP)
            sides[name]()  # so that caches hold what it reads
            until = time.perf_counter() + share
            while True:
                began, busy = time.perf_counter(), time.process_time()
                sides[name]()
                cpu[name].append(1e3 * (time.process_time() - busy))
                wall[name].append(1e3 * (time.perf_counter() - began))
                if time.perf_counter() > until:
                    break
        turn += 1
    return wall, cpu


def difference(made: Any, expected: Any) -> float:
    """The largest, as a part of the largest magnitude that is expected; masks and indices are equal or not."""
    expected = np.asarray(expected, np.float64)
    if not expected.size:
        return 0.0
    return float(np.abs(np.asarray(made, np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30))


def close(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    found = [arguments.folder / "rows" / f"{row.name}.json" for row in rows]
    lines = [json.loads(path.read_text()) for path in found if path.is_file()]
    environments = [line.pop("environment") for line in lines]
    head = environments[0] | {"command": "python benchmarks/host/host_models.py FOLDER measure"}
    if any(each["device"] != head["device"] or each["versions"] != head["versions"] for each in environments):
        raise SystemExit("rows of several machines or versions: measure them again in a folder of their own")
    print(record.write("host_models", {**head, "rows": lines}, arguments.out))
    return 0


PHASES = {"export": export, "build": build, "pack": pack, "measure": measure, "row": one_row, "close": close}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("phase", choices=PHASES)
    parser.add_argument("--only", default="", help="names of rows, with commas between")
    parser.add_argument("--seconds", type=float, default=2.0, help="of both sides together with one number of threads")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which `measure` begins no row")
    parser.add_argument("--threads", default="", help="numbers of threads; 1 and all cores if not given")
    parser.add_argument("--out", type=Path, help="write here instead")
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    wanted = arguments.only.split(",") if arguments.only else [row.name for row in ROWS]
    return PHASES[arguments.phase](arguments, [row for row in ROWS if row.name in wanted])


if __name__ == "__main__":
    sys.exit(main())

"""Engines of networks that no recipe names beside PyTorch's: exported here, built without a lock, as a stranger's are.

    # where torch and the networks' packages are: random weights
    python benchmarks/peers/untuned_networks.py FOLDER export
    python benchmarks/peers/untuned_networks.py FOLDER build    # engines, their kernels chosen by prediction alone
    python benchmarks/peers/untuned_networks.py FOLDER measure  # on the GPU, again until it says that no row is left
    # on the GPU: only their steps, without peers (`untuned_steps.py`)
    python benchmarks/peers/untuned_networks.py FOLDER steps
    python benchmarks/peers/untuned_networks.py FOLDER close    # anywhere: writes results/other_networks.json
    ... close --merge FOLDER... --keep                  # rows of folders beside it, one a GPU say, and of before
    ... --table other_encoders                          # the other table: attention in texts, images and sounds

Both sides compute in fp16 with fp32 sums, and have the same weights, in turns; their outputs are compared. Each step is
timed alone as well, beside its bound (`roofline_by_kind.py`). Networks of images read fp16 channels-last images on both
sides; their peers are the ONNX model in torch (`bolt-build bench --against`), in a CUDA graph and by torch.compile
reduce-overhead. Encoders have the exported module itself as their peers (`source_models.py`), as its package runs it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.peers import peer_rows
from benchmarks.peers.against_peers import load
from benchmarks.peers.peer_rows import PeerRow
from benchmarks.planning.roofline_by_kind import bound_us
from benchmarks.planning.step_kinds import kind_of
from bolt_build.bench.replays import step_times
from bolt_build.build.planning.engine_file import read_engine

SECONDS = 75.0
"""What a row may take."""
SOURCE = {"source": "EAGER", "source-graph": "GRAPH", "source-frozen": "FROZEN"}
"""Peers, and what each is called in `source_models`."""
BY_TRACING = (
    "gpt2", "llama_1b_4_layers", "qwen3_600m_8_layers", "gemma2_4_layers", "bloom_6_layers", "gemma2_2b_2_layers",
    "mistral_4096_2_layers", "bloom_560m_2_layers",
)  # fmt: skip
"""Exported by torch.export: the exporter of TorchScript has no form of what their masks are made with."""
IMAGES = ("dinov2_small", "siglip_base", "beit_base", "vitdet_base_4_layers")
"""Of transformers, those that read images."""
NAME = "source.txt"
"""Beside the ONNX file `x.onnx` lies `x.source.txt`: which model of `export_torch.py` it is."""
PEERS = {"other_networks": ("torch-graph", "torch-reduce-overhead"), "other_encoders": tuple(SOURCE)}
EXPORTER = ROOT / "benchmarks" / "exporters" / "export_torch.py"


@dataclass(frozen=True)
class Row(PeerRow):
    """`source`: what `export_torch.py` calls the model."""

    source: str = "torchvision"

    @property
    def image(self) -> bool:
        """Whether it reads images alone."""
        return not self.source.startswith("sized.") or self.model in IMAGES


def row(source: str, batch: int = 32) -> Row:
    return Row(source.partition(".")[2], batch, source=source)


NETWORKS = tuple(map(row, (
    "torchvision.regnet_y_1_6gf", "torchvision.shufflenet_v2_x1_0", "torchvision.efficientnet_v2_s",
    "torchvision.swin_t", "torchvision.inception_v3", "timm.ghostnet_100", "timm.res2net50_14w_8s",
    "timm.mobilevitv2_050", "timm.poolformer_s12", "timm.repvit_m0_9", "timm.mobilenetv4_conv_small",
    "timm.fastvit_t8", "timm.dla34", "timm.convnextv2_atto",
    "timm.hrnet_w18_small", "timm.ese_vovnet19b_dw", "timm.mambaout_femto", "timm.resnest14d",
    "torchvision.googlenet", "torchvision.mnasnet1_0", "torchvision.resnext101_32x8d",
    "timm.seresnext26d_32x4d", "timm.eca_nfnet_l0", "timm.skresnet18", "timm.cspresnet50", "timm.mixnet_s",
    "timm.hgnet_tiny", "timm.inception_next_atto", "timm.edgenext_xx_small", "timm.rexnet_100",
    "timm.efficientformer_l1",
)))  # fmt: skip
"""Kinds of blocks that the recipes do not have: none of these was looked at when kernels were made."""
ENCODERS = (
    *(row(f"sized.{name}", 8) for name in (
        "roberta_base", "electra_small", "albert_base", "mpnet_base", "deberta_v2_small", "modernbert_base",
        "t5_base_encoder", "gpt2", "llama_1b_4_layers", "qwen3_600m_8_layers", "dinov2_small", "siglip_base",
        "beit_base", "wav2vec2_base", "squeezebert_base", "xlnet_6_layers", "mobilebert", "gemma2_4_layers",
        "bloom_6_layers", "hubert_base_6_layers",
    )),
    *map(row, (
        "torchvision.swin_v2_t", "timm.xcit_nano_12_p16_224", "timm.deit_tiny_patch16_224",
        "timm.eva02_tiny_patch14_224", "timm.levit_128s", "timm.pvt_v2_b0", "timm.twins_svt_small",
        "timm.tiny_vit_5m_224", "timm.mvitv2_tiny",
    )),
    row("sized.gemma2_2b_2_layers", 4), row("sized.mistral_4096_2_layers", 1), row("sized.bloom_560m_2_layers", 8),
    row("sized.convbert_base_2_layers", 8), row("sized.vitdet_base_4_layers", 4), row("sized.wavlm_base_4_layers", 8),
)  # fmt: skip
"""Kinds of attention that the recipes do not have: relative positions, rotary ones, grouped heads, causal, windows,
bounded scores, biases by distance, by rows and by columns."""
TABLES = {"other_networks": NETWORKS, "other_encoders": ENCODERS}


def export(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Writes the files that are not there yet, some at a time."""

    def exported(each: Row) -> bool:
        file = arguments.folder / f"{each.model}.onnx"
        form = "dynamo18" if each.model in BY_TRACING else "ts17"
        words = [sys.executable, str(EXPORTER), each.source, form, str(file), str(each.batch)]
        said = "ok" if file.is_file() else subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout
        print(f"{each.source}: {said.strip()}", flush=True)
        if file.is_file():
            file.with_suffix(f".{NAME}").write_text(f"{each.source}\n")
        return bool(file.is_file())

    with ThreadPoolExecutor(arguments.builds) as pool:
        return 0 if all(list(pool.map(exported, rows))) else 1


def build(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    images = {each.model for each in rows if each.image}

    def recipe(model: str) -> Path:
        path: Path = arguments.folder / f"{model}.yaml"
        io = "dtype: fp16, layout: channels_last" if model in images else "dtype: fp16"
        path.write_text(
            f"bolt: 1\nmodel: {{onnx: {model}.onnx}}\ntargets: {{{arguments.target}: {{precision: fp16}}}}\n"
            f"engine: {{io: {{{io}}}}}\nverify: {{samples: 1}}\n"
        )
        return path

    return peer_rows.build(arguments, rows, recipe)


def steps_of(directory: Path, batch: int) -> list[dict[str, Any]]:
    """Every step of a built engine alone, beside its bound."""
    taken = dict(step_times(directory, batch))
    (plan,) = (each for each in read_engine((directory / "engine.json").read_text()).plans if each.batch == batch)
    return [
        {"step": step.name, "kind": kind_of(step.problem), "family": step.candidate.family,
         "us": 1e3 * taken[step.name], "bound_us": bound_us(step.problem)}
        for step in plan.steps if not step.view
    ]  # fmt: skip


def steps(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Times every step of the engines that were built, to `steps_NAME.json`."""
    engines = load(arguments.folder / "engines.json") or {}
    for each in rows:
        if "directory" not in engines.get(each.model, {}):
            print(f"{each.model}: no engine was built here", flush=True)
            continue
        taken = steps_of(arguments.folder / engines[each.model]["directory"], each.batch)
        head = {"environment": record.environment(), "gpu": record.gpu_name()}
        record.save(arguments.folder / f"steps_{each.name}.json", head | {"steps": taken})
    return 0


def measure(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    peer_rows.offer_peers(arguments.folder, "source_models", SOURCE)
    packages = ("torch", "torchvision", "timm", "transformers")
    peers = tuple(arguments.peers or PEERS[arguments.table])
    peer_rows.measure(arguments, rows, lambda _: peers, lambda _: SECONDS, *packages)
    engines = load(arguments.folder / "engines.json") or {}
    for each in rows:
        path = arguments.folder / f"row_{each.name}.json"
        found = load(path)
        if found is not None and "steps" not in found:
            steps = steps_of(arguments.folder / engines[each.model]["directory"], each.batch)
            record.save(path, found | {"steps": steps})
    return 0


def close(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    found = peer_rows.measured(arguments, rows)
    taken = {(each.model, each.batch): row.get("steps") for each, row in found.items()}
    lines = []
    for line in peer_rows.lines_of(arguments, arguments.table, rows, found):
        ran = taken.get((line["model"], line["batch"]))
        sums = {} if ran is None else {"steps": sum(step["us"] for step in ran),
                                       "bound_us": sum(step["bound_us"] for step in ran)}  # fmt: skip
        lines.append(compared(line) | sums)
    first = peer_rows.head_of(arguments, found)
    return peer_rows.write(arguments, arguments.table, first, peer_rows.by_gpu(lines), rows, lines)


def compared(line: dict[str, Any]) -> dict[str, Any]:
    """A row whose fastest peer is known. Eager takes what Python takes to launch kernels: where nothing else of PyTorch
    ran, no peer is called the fastest."""
    if line["contestants"].keys() <= {"engine", "source"}:
        return line | {"best_peer": None, "speedup": None}
    return line


def main() -> int:
    parser = peer_rows.parser_of(__doc__, "export", "build", "measure", "steps", "close")
    parser.add_argument("--rows", nargs="+", metavar="MODEL", help="only these, swin_t say")
    parser.add_argument("--table", choices=TABLES, default="other_networks")
    every = tuple(peer for peers in PEERS.values() for peer in peers)
    parser.add_argument("--peers", nargs="+", choices=every, help="measure: beside these (default: all of the table)")
    arguments = peer_rows.parsed(parser)
    rows = [each for each in TABLES[arguments.table] if arguments.rows is None or each.model in arguments.rows]
    stages = {"export": export, "build": build, "measure": measure, "steps": steps, "close": close}
    return stages[arguments.stage](arguments, rows)


if __name__ == "__main__":
    sys.exit(main())

"""Compiles candidates.so and the driver as a tuning does, without its task graph: for tests, and to try things by hand.

python tests/support/tuning_builder.py FOLDER LABEL...   (labels of `gpu_layers`; "smoke" stands for three of them)
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from families_harness import Layer, graph_with
from gpu_harness import TARGET
from gpu_layers import BANDWIDTH, EPILOGUES, MATMULS, SHAPES
from gpu_resnet50 import resnet50

from bolt_build import runtime
from bolt_build.families import load
from bolt_build.toolchain import probe
from bolt_build.tuning.compile import glue
from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial

DATA = Path(__file__).parents[1] / "data"
CHAIN = probe(TARGET.tools)
SMOKE = ("b32-56_3x3s1_64_64_x3", "b32-14_1x1s1_256_1024_x6", "b32-224_7x7s2_3_64_x1")
_FAMILIES = {family.name: family for family in load(TARGET)}


def layers() -> dict[str, Layer]:
    found = (*SHAPES, *EPILOGUES, *MATMULS, *resnet50(1), *resnet50(32), *BANDWIDTH)
    return {layer.label: layer for layer in found}


def trials_of(layer: Layer, limit: int) -> tuple[ProblemTrials, ...]:
    """The layer's problems, each with the best `limit` candidates of every family and their variants."""
    graph, node = graph_with(layer)
    steps = [
        (alternative.steps[0].problem, family)
        for family in _FAMILIES.values()
        for alternative in family.propose(graph, node, TARGET, layer.precision)[0]
    ]
    found = []
    for problem in {problem.digest: problem for problem, _ in steps}.values():
        offers = [family for other, family in steps if other == problem]
        trials = [
            (family, Trial(candidate, family.predict(problem, candidate, TARGET)))
            for family in offers
            for candidate in family.candidates(problem, TARGET)[0][:limit]
        ]
        variants = [
            Trial(variant, family.predict(problem, variant, TARGET), index)
            for index, (family, trial) in enumerate(trials)
            for variant in family.variants(problem, trial.candidate, TARGET)
        ]
        found.append(ProblemTrials(problem, (layer.label,), (*(trial for _, trial in trials), *variants), ()))
    return tuple(found)


def write(problems: Sequence[ProblemTrials], folder: Path, bundle: str) -> None:
    """Sources of candidates.so: glue, table, and the kernels' units."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [glue.source_of([trials], _FAMILIES, TARGET) for trials in problems]
    sources.append(glue.table_source(problems, bundle, TARGET))
    for source in sources:
        _write(folder / source.name, source.text)
    for family in _FAMILIES.values():
        steps = [(p.problem, t.candidate) for p in problems for t in p.trials if t.candidate.family == family.name]
        for unit in family.units(steps, TARGET):
            _write(folder / unit.name, unit.text)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def includes() -> list[str]:
    folders = [glue.include_dir(), runtime.include_dir(), DATA, *(family.include_dir for family in _FAMILIES.values())]
    system = [path for name in ("nvcc", "cutlass") for path in CHAIN.tool(name).include_dirs]
    return [*(f"-I{path}" for path in folders), *(word for path in system for word in ("-isystem", path))]


def compiled(source: Path, folder: Path) -> Path:
    """The object of one source in `folder`; one that was made from equal text is kept. Headers are not looked at."""
    nvcc = CHAIN.tool("nvcc").path
    assert nvcc is not None
    if source.suffix == ".cu":
        argv = [nvcc, "-std=c++17", *TARGET.compile_flags, "-Xcompiler", "-fPIC"]
    else:
        argv = ["g++", "-std=c++17", "-O0", "-fPIC", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
    others = (*glue.include_dir().rglob("*.h"), *source.parent.glob("*.h"), *glue.driver_sources())
    text = source.read_bytes() + b"".join(path.read_bytes() for path in sorted(others))
    made = folder / f"{source.name}.{hashlib.sha256(text).hexdigest()[:12]}.o"
    if not made.exists():
        begun = time.monotonic()
        run([*argv, *includes(), "-c", source, "-o", made])
        print(f"{time.monotonic() - begun:6.1f} s  {source.name}", flush=True)
    return made


def run(argv: Sequence[object]) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, argv))}\n{done.stdout}{done.stderr}"


def all_compiled(sources: Sequence[Path], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as pool:
        return list(pool.map(lambda source: compiled(source, folder), sources))


def _libraries() -> list[str]:
    return [*(f"-L{path}" for path in CHAIN.tool("nvcc").library_dirs), *TARGET.link_flags]


def build_driver(folder: Path) -> Path:
    """`folder`/run."""
    objects = all_compiled(glue.driver_units(), folder / "objects")
    run(["g++", *objects, *_libraries(), "-o", folder / "run"])
    return folder / "run"


def build_candidates(folder: Path) -> Path:
    """`folder`/candidates.so from what `write` left in `folder`/source."""
    objects = all_compiled(sorted((folder / "source").glob("*.c*")), folder / "objects")
    run(["g++", "-shared", "-Wl,--no-undefined", *objects, *_libraries(), "-o", folder / "candidates.so"])
    return folder / "candidates.so"


def main() -> None:
    folder, labels = Path(sys.argv[1]), sys.argv[2:]
    labels = [*SMOKE] if labels == ["smoke"] else labels
    limit = int(os.environ.get("TRIALS", "3"))
    problems = [trials for label in labels for trials in trials_of(layers()[label], limit)]
    write(problems, folder / "source", "0123456789abcdef")
    build_driver(folder)
    print(build_candidates(folder))


if __name__ == "__main__":
    main()

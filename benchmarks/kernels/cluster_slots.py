"""Takes what `cluster_slots.cu` printed on a GPU into the results: how many clusters of some blocks it holds at once.

    python benchmarks/kernels/cluster_slots.py FILE --head RESULT.json

RESULT is a result that was measured on the same machine, whose head says which it was. Writes
`results/cluster_slots.json`: by blocks of a multiprocessor, by blocks of a cluster, the clusters.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record


def slots(printed: str) -> dict[str, dict[str, int]]:
    """Raises ValueError where a cluster was not launched."""
    found = {}
    for line in printed.splitlines()[1:]:
        beside, _, counts = line.partition(" blocks a multiprocessor:")
        found[beside] = {blocks: int(clusters) for blocks, clusters in (each.split(":") for each in counts.split())}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--head", type=Path, required=True)
    arguments = parser.parse_args()
    head, printed = json.loads(arguments.head.read_text()), arguments.file.read_text()
    result = {key: head[key] for key in ("device", "date", "python", "gpu")} | {
        "command": "python benchmarks/kernels/cluster_slots.py FILE (what cluster_slots.cu printed)",
        "multiprocessors": int(printed.splitlines()[0].split(", ")[1].split()[0]), "clusters": slots(printed),
    }  # fmt: skip
    print(record.write("cluster_slots", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Takes what `instruction_clocks.cu` printed on a GPU into the results: what an instruction of a warp takes, how far
SiLU by a tangent is off, and how long stores of some bytes of each pixel take.

    python benchmarks/kernels/instruction_clocks.py FILE --head RESULT.json

RESULT is a result that was measured on the same machine, whose head says which it was. Writes
`results/instruction_clocks.json`: clocks of a scheduler by instruction, the largest error, and us by bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record


def read(printed: str) -> dict[str, Any]:
    """Raises ValueError for a line of another form."""
    clocks, written, error = dict[str, float](), dict[str, float](), 0.0
    for line in printed.splitlines()[1:]:
        what, _, value = line.rpartition(": ")
        if what.startswith("instruction "):
            clocks[what.removeprefix("instruction ")] = float(value)
        elif what.startswith("writes of "):
            written[what.split()[2]] = float(value)
        else:
            error = float(value)
    return {"clocks": clocks, "silu_error": error, "writes_us": written}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--head", type=Path, required=True)
    arguments = parser.parse_args()
    head, printed = json.loads(arguments.head.read_text()), arguments.file.read_text()
    result = {key: head[key] for key in ("device", "date", "python", "gpu")} | {
        "command": "python benchmarks/kernels/instruction_clocks.py FILE (what instruction_clocks.cu printed)",
        **read(printed),
    }
    print(record.write("instruction_clocks", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

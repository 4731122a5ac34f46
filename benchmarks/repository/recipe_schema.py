"""Writes `bolt_build/schema/recipe.schema.json` again, with the keys that `recipe.py` has.

python benchmarks/repository/recipe_schema.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT
from bolt_build.schema.schema_file import rendered

FILE = ROOT / "bolt_build" / "schema" / "recipe.schema.json"


def main() -> None:
    FILE.write_text(rendered(json.loads(FILE.read_text(encoding="utf-8"))), encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

"""How large installations are."""

from __future__ import annotations

from typing import Any

from . import figures, table


@figures("install_sizes")
def sizes(data: Any) -> dict[str, str]:
    found = data["installations"]
    rows = [[name, f"{each['bytes'] / 1e6:.0f} MB"] for name, each in found.items()]
    largest = list(found["host"]["packages"].items())[:8]
    return {
        "sizes": table(["installation", "size"], rows),
        "sizes.largest": table(["package", "size"], [[name, f"{size / 1e6:.0f} MB"] for name, size in largest]),
    }

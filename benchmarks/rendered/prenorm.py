"""How exact a product of normalised rows is, in three ways."""

from __future__ import annotations

from typing import Any

from . import figures, table


@figures("prenorm_numerics")
def prenorm_numerics(data: Any) -> dict[str, str]:
    """A row a sort of rows, a column a way and type."""
    errors = data["errors"]
    kinds = list(next(iter(errors.values())))
    ways = list(next(iter(errors.values()))[kinds[0]])
    rows = [
        [name, *(f"{each[kind][way] * 1e4:.1f}" for kind in kinds for way in ways)] for name, each in errors.items()
    ]
    head = ["error in 1e-4", *(f"{kind}, {way}" for kind in kinds for way in ways)]
    over = {
        way: max(each[kind][way] / each[kind]["stored"] for each in errors.values() for kind in kinds) for way in ways
    }
    return {
        "prenorm_numerics": table(head, rows),
        "prenorm_numerics.folded": f"{over['folded']:.0f}",
        "prenorm_numerics.pivot": f"{over['pivot']:.1f}",
    }

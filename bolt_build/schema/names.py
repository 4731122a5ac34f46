"""Names of engines: what may be one, and what a recipe's file is taken to name."""

from __future__ import annotations

import re
import unicodedata

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]+")


def engine_name(text: str) -> str | None:
    """`text` as the name of an engine, as the schema wants one: itself where it is one ("res-net.v2"), otherwise
    without accents and with underscores in the place of what may not be there ("my net" is "my_net").

    None where nothing is left. The C identifier that is made of a name is `emit.names.identifier`'s business.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _ILLEGAL.sub("_", plain.strip()).lstrip("_.-") or None

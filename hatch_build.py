"""What the package's page says: the README, with links that lead somewhere from wherever it is shown.

`repository` in pyproject.toml is the project's address once it is published. Links then are absolute, and the page has
the project's URLs. Without it there is nothing to link to: a link's words stay, and name the file in the checkout.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class PackagePage(MetadataHookInterface):
    """Fills in what pyproject.toml calls dynamic: readme and urls."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = str(self.config["repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": page(text, repository)}
        metadata["urls"] = urls(repository)


def page(readme: str, repository: str) -> str:
    """The README with absolute links, or without links and pictures where there is no `repository`."""

    def link(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if repository:
            return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/main/{path})"
        return "" if picture else words if path.startswith(words) else f"{words} ({path})"

    return _LINK.sub(link, re.sub(r"<!-- /?(?:figures: [\w.]+)? ?-->|<!-- / -->", "", readme))


def urls(repository: str) -> dict[str, str]:
    """The project's addresses."""
    if not repository:
        return {}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/main/docs/overview.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }

"""The importers of ONNX operators, looked up by domain, operator and the opset that last changed it."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.graph.importing import Importer, OnnxNode


class ImporterTable:
    """Importers by domain, operator and since_version. Raises ValueError where two claim the same."""

    def __init__(self, importers: Iterable[Importer]) -> None:
        self._found: dict[tuple[str, str], dict[int, Importer]] = {}
        for importer in importers:
            versions = self._found.setdefault((importer.domain, importer.op_type), {})
            for version in importer.versions:
                if version in versions:
                    raise ValueError(f"two importers for version {version} of {importer.op_type}")
                versions[version] = importer

    def operators(self) -> frozenset[str]:
        """ONNX's own operators that can be imported in some version."""
        return frozenset(op_type for domain, op_type in self._found if not domain)

    def folds(self, op_type: str) -> bool:
        """Whether ONNX's operator of that name is taken on constants alone, in every version."""
        return all(importer.folds for importer in self._found[("", op_type)].values())

    def importers(self) -> tuple[Importer, ...]:
        """Each once, by domain and operator, the newest versions first."""
        found = [
            (key, -max(importer.versions), importer) for key, by in self._found.items() for importer in by.values()
        ]
        return tuple(dict.fromkeys(importer for _, _, importer in sorted(found, key=lambda each: each[:2])))

    def versions(self, node: OnnxNode) -> tuple[int, ...]:
        """The versions of the node's operator that can be imported."""
        return tuple(sorted(self._found.get((node.domain, node.op_type), {})))

    def find(self, node: OnnxNode) -> Importer | None:
        """The importer for the node. In a domain of its own, without schemas, the newest that is not too new."""
        versions = self._found.get((node.domain, node.op_type), {})
        if not node.domain:
            return versions.get(node.since_version)
        return versions.get(max((v for v in versions if v <= node.since_version), default=-1))

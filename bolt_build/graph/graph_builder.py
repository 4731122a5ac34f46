"""A graph while a model is imported into it."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.graph.budget import Budget
from bolt_build.graph.ir import Array, Constant, Node, Stored, TensorType, Value


class GraphBuilder:
    """The graph under construction: values and nodes by name, in the order of definition."""

    def __init__(self, tensors: Iterable[str], nodes: Iterable[str], budget: Budget) -> None:
        """`tensors` and `nodes` are the model's own names; `budget` is what may be computed at import."""
        self.budget = budget
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.sequences: dict[str, tuple[str, ...]] = {}
        """ONNX's sequences by name: the tensors in each."""
        self.narrow: dict[str, str] = {}
        """Constants that are read as a wider type than the model has them in, and the name of that (`narrow`)."""
        self._tensors, self._labels = _Names(tensors), _Names(nodes)

    def fresh(self, base: str) -> str:
        """A value's name: `base`, or it with the least number behind it that makes it new."""
        return self._tensors.fresh(base)

    def label(self, base: str) -> str:
        """A node's name, made as `fresh` makes a value's."""
        return self._labels.fresh(base)

    def define(
        self, name: str, type_: TensorType, array: Array | None = None, synthetic: bool = False,
        stored: Stored | None = None,
    ) -> str:  # fmt: skip
        constant = None if array is None else Constant(array, stored)
        self.values[name] = Value(name, type_, constant, synthetic)
        return name

    def constant(self, name: str) -> Array | None:
        constant = self.values[name].constant
        return None if constant is None else constant.array


class _Names:
    """Names that are taken."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        name, count = base, self._counts.get(base, 1)
        while name in self._taken:
            count += 1
            name = f"{base}.{count}"
        self._taken.add(name)
        self._counts[base] = count
        return name

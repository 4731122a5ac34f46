"""What a pass is: a pure function from graph to graph that says what it did and what it declined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bolt_build.graph.ir import Graph
from bolt_build.planner.engine_plan import Decision
from bolt_build.schema.recipe import FusionPolicy, PaddingPolicy, Policy
from bolt_build.targets import Target


@dataclass(frozen=True)
class PassResult:
    """The rewritten graph and a line for everything that was done or declined."""

    graph: Graph
    decisions: tuple[Decision, ...]


@dataclass(frozen=True)
class Pass:
    """A named rewrite. It keeps the meaning of every graph output, and every surviving value's name and values.

    No decision may rest on the values of a constant with more than one element: weights can be swapped without a
    rebuild. What rewrites reads the graph alone (`rewrite`), or beside it how a recipe wants channels padded
    (`by_padding`) or nodes fused (`by_fusion`): one of the three. `before` is the built-in pass in front of which a
    pass from another package runs. `pays_on` says for which target and precision the pass runs, None that it pays
    everywhere. `in_fp16` runs in the place of `rewrite` where the precision is fp16, whose weights lose digits below
    its normal numbers; None: there is no difference. Raises ValueError where nothing rewrites, or several things do.
    """

    name: str
    rewrite: Callable[[Graph], PassResult] | None = None
    before: str = "fuse-epilogues"
    pays_on: Callable[[Target, str], bool] | None = None
    in_fp16: Callable[[Graph], PassResult] | None = None
    by_padding: Callable[[Graph, PaddingPolicy], PassResult] | None = None
    by_fusion: Callable[[Graph, FusionPolicy], PassResult] | None = None

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.rewrite, self.by_padding, self.by_fusion)) != 1:
            raise ValueError(f"pass '{self.name}' has to have one of rewrite, by_padding and by_fusion")

    def run(self, graph: Graph, policy: Policy, precision: str = "") -> PassResult:
        """The graph as the pass rewrites it, in this precision (`fp16`)."""
        if self.by_padding is not None:
            return self.by_padding(graph, policy.padding)
        if self.by_fusion is not None:
            return self.by_fusion(graph, policy.fusion)
        rewrite = self.in_fp16 if precision == "fp16" and self.in_fp16 is not None else self.rewrite
        assert rewrite is not None, "one of the three is there"
        return rewrite(graph)


def on_tensor_cores(target: Target, precision: str) -> bool:
    """Whether the target multiplies in the precision on tensor cores, whose kernels read and store rows wherever they
    lie."""
    return target.gpu is not None and target.gpu.instruction(precision) is not None


class Journal:
    """Collects a pass's decisions."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._decisions: list[Decision] = []

    def did(self, subject: str, action: str, reason: str) -> None:
        self._decisions.append(Decision(self._stage, subject, action, reason))

    def declined(self, subject: str, reason: str) -> None:
        self._decisions.append(Decision(self._stage, subject, "declined", reason))

    def result(self, graph: Graph) -> PassResult:
        return PassResult(graph, tuple(dict.fromkeys(self._decisions)))

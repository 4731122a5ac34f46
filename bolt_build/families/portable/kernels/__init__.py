"""The portable kernels, one file a group of operators; `RULES` has one entry an operator."""

from __future__ import annotations

from bolt_build.families.portable.kernels import elementwise, moves, products, reductions, windows
from bolt_build.families.portable.rule import Rule
from bolt_build.graph.ir import Op

RULES: dict[type[Op], Rule] = {
    rule.op: rule for rule in (*elementwise.RULES, *moves.RULES, *products.RULES, *reductions.RULES, *windows.RULES)
}

"""Gates, norms and angles of newer decoders, and states that they carry on: beside onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contrib_nodes import Case, drawn, refusal, same_as_onnxruntime

ROWS, BESIDE, VECTOR = drawn(2, 3, 16), drawn(2, 3, 16), drawn(16)
ANGLES = np.random.RandomState(0).standard_normal((9, 8)).astype(np.float32)
PLACES = np.random.RandomState(1).randint(0, 9, (3, 2, 5))
STATE = {"q_num_heads": 2, "kv_num_heads": 2}

CASES = {
    "silu": Case("ScaledSiLU", (ROWS,), (), {"alpha": 1.7}),
    "silu of a given factor": Case("ScaledSiLU", (ROWS,), (np.asarray(0.6, np.float32),), {"alpha": 3.0}),
    "gated norm": Case("GatedRMSNorm", (ROWS,), (VECTOR, BESIDE)),
    "gated norm of runs": Case(
        "GatedRMSNorm", (ROWS,), (VECTOR[:8], BESIDE), {"activation": "sigmoid", "epsilon": 0.1}
    ),
    "branches": Case("BranchwiseRMSNorm", (ROWS,), (VECTOR,), {"num_branches": 4}),
    "branches of one scale": Case("BranchwiseRMSNorm", (ROWS,), (VECTOR[:4],), {"num_branches": 4, "epsilon": 0.1}),
    "branches apart": Case("BranchwiseRMSNorm", (ROWS,), (drawn(3, 16),)),
    "branches without scales": Case("BranchwiseRMSNorm", (ROWS,)),
    "gated sum": Case("GatedAdd", (ROWS, BESIDE, drawn(2, 3, 1))),
    "gate of a state": Case("LinearAttentionGate", (ROWS,), (VECTOR, drawn(16))),
    "both gates": Case("LinearAttentionGate", (ROWS,), (VECTOR, drawn(16), BESIDE), {}, ("y", "beta")),
    **{
        f"angles of images, {layout}": Case(
            "MRotaryEmbedding", (drawn(2, 4, 5, 16), PLACES), (np.cos(ANGLES), np.sin(ANGLES)),
            {"mrope_section": [4, 2, 2], "mrope_layout": layout},
        )
        for layout in (0, 1)
    },
    "angles of rows": Case(
        "MRotaryEmbedding", (drawn(2, 5, 40), PLACES), (np.cos(ANGLES), np.sin(ANGLES)),
        {"mrope_section": [4, 2, 2], "mrope_layout": 1, "num_heads": 2, "rotary_embedding_dim": 16},
    ),
    "a state": Case("LinearAttention", tuple(drawn(2, 3, 8) for _ in range(3)), (), {**STATE, "update_rule": "linear"},
                    ("y", "state")),
    "a state that is written over": Case(
        "LinearAttention", (drawn(2, 3, 8), drawn(2, 3, 8), drawn(2, 3, 12), drawn(2, 2, 4, 6), -abs(drawn(2, 3, 2)),
                            abs(drawn(2, 3, 2))), (), {**STATE, "update_rule": "gated_delta"}, ("y", "state"),
    ),
    "windows": Case("CausalConvWithState", (drawn(2, 4, 5),), (drawn(4, 1, 3),), {}, ("y", "state")),
    "windows behind others": Case(
        "CausalConvWithState", (drawn(2, 4, 5),), (drawn(4, 1, 3), drawn(4), drawn(2, 4, 2)), {"activation": "silu"},
        ("y", "state"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    same_as_onnxruntime(CASES[name], tmp_path)


REFUSED = {
    "operator com.microsoft.GatedRMSNorm is not supported in the form that it has here: node 'node'": Case(
        "GatedRMSNorm", (ROWS,), (VECTOR[:5], BESIDE)
    ),
    "operator com.microsoft.BranchwiseRMSNorm is not supported in the form that it has here: node 'node'": Case(
        "BranchwiseRMSNorm", (ROWS,), (), {"num_branches": 5}
    ),
    "GatedAdd 'node': gates that the node computes (gate_weight) are not supported": Case(
        "GatedAdd", (ROWS, BESIDE, BESIDE), (drawn(16, 1),)
    ),
    "MRotaryEmbedding 'node': mrope_section [1, 2, 2] must be three numbers that add up to 8": Case(
        "MRotaryEmbedding", (drawn(2, 4, 5, 16), PLACES), (ANGLES, ANGLES), {"mrope_section": [1, 2, 2]}
    ),
    "CausalConvWithState 'node': dilation=2 is not supported": Case(
        "CausalConvWithState", (drawn(2, 4, 5),), (drawn(4, 1, 3),), {"dilation": 2}
    ),
}  # fmt: skip


@pytest.mark.parametrize("said", REFUSED)
def test_what_they_have_beyond_is_refused_with_a_reason(said: str, tmp_path: Path) -> None:
    assert refusal(REFUSED[said], tmp_path) == [said]

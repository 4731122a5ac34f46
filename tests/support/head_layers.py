"""Layers over heads that the portable kernels are tried with: attention, normalisation by head, rotary positions."""

from __future__ import annotations

from families_harness import Input, Layer

from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.attention.heads import HeadRows, Rotary

HEADS = [
    Layer("rotary-halves", Rotary(), (Input((2, 3, 5, 16)), Input((5, 16), True), Input((5, 16), True))),
    Layer("rotary-neighbours", Rotary(True), (Input((2, 3, 5, 12)), Input((5, 12), True), Input((5, 12), True))),
    Layer("rotary-part", Rotary(), (Input((3, 5, 20)), Input((3, 1, 6)), Input((3, 1, 6)))),
    Layer("rotary-long", Rotary(True), (Input((2, 5, 136)), Input((5, 96), True), Input((5, 96), True))),
    Layer("rotary-behind", Rotary(passed=8), (Input((2, 3, 5, 28)), Input((5, 16), True), Input((5, 16), True))),
    Layer("rotary-behind-odd", Rotary(True, 3), (Input((2, 5, 12)), Input((5, 6), True), Input((5, 6), True))),
    Layer("heads-rms-turned-behind", HeadRows(2, "rms", 1e-6, True, rotary=True, passed=32),
          (Input((2, 5, 144)), Input((72,), True), Input((5, 1, 32), True), Input((5, 1, 32), True))),
    Layer("heads-cosine", HeadRows(3, "l2", 1e-12, True), (Input((2, 5, 96)), Input((3, 32), True))),
    Layer("heads-layer-norm", HeadRows(3, "variance", 1e-5, True, True),
          (Input((2, 5, 120)), Input((40,), True), Input((40,), True))),
    Layer("heads-rms-turned", HeadRows(2, "rms", 1e-6, True, rotary=True),
          (Input((2, 5, 144)), Input((72,), True), Input((5, 1, 72), True), Input((5, 1, 72), True))),
    Layer("heads-shifted-turned", HeadRows(4, "", 0.0, True, True, True, True),
          (Input((3, 7, 64)), Input((4, 16), True), Input((4, 16), True), Input((3, 7, 1, 16)), Input((3, 7, 1, 16)))),
    Layer("heads-odd", HeadRows(3, "l1", 0.0), (Input((2, 5, 21)),)),
]  # fmt: skip


def attention(label: str, op: Attention, *shapes: tuple[int, ...], mask: Input | None = None) -> Layer:
    return Layer(label, op, (*(Input(shape) for shape in shapes), *(() if mask is None else (mask,))))


HIDING = -1e39
"""Masks from here to 0 are minus infinity in two places of three, and enormous in the others."""

ATTENTION = [
    attention("attention", Attention(2, 2, 0.35), (2, 5, 16), (2, 5, 16), (2, 5, 16)),
    attention("attention-packed", Attention(3, 3, 0.3, packed=True), (2, 70, 63)),
    attention("attention-packed-groups", Attention(4, 2, -0.3, causal=True, packed=True), (1, 67, 64),
              mask=Input((4, 1, 67), True)),
    attention("attention-grouped", Attention(4, 2, 0.25, causal=True), (2, 9, 64), (2, 140, 32), (2, 140, 14),
              mask=Input((2, 1, 9, 140))),
    attention("attention-wide", Attention(1, 1, 0.05), (1, 3, 300), (1, 33, 300), (1, 33, 700),
              mask=Input((1, 3, 1))),
    attention("attention-windows", Attention(2, 2, 0.5), (6, 9, 8), (6, 5, 8), (6, 5, 10), mask=Input((3, 2, 9, 5))),
    attention("attention-hidden", Attention(2, 2, 0.5), (3, 40, 6), (3, 2, 6), (3, 2, 10),
              mask=Input((3, 2, 40, 2), low=HIDING, high=0.0)),
    attention("attention-hidden-safe", Attention(2, 1, 0.5, safe=True), (3, 40, 6), (3, 2, 3), (3, 2, 5),
              mask=Input((40, 2), True, HIDING, 0.0)),
    attention("attention-window", Attention(2, 2, 0.5, causal=True, window=70), (1, 150, 16), (1, 210, 16),
              (1, 210, 20)),
    attention("attention-window-sides", Attention(2, 1, 0.5, window=3), (2, 40, 16), (2, 40, 8), (2, 40, 8),
              mask=Input((2, 1, 1, 40))),
    attention("attention-cap", Attention(2, 2, 2.0, causal=True, cap=1.5), (1, 30, 16), (1, 30, 16), (1, 30, 16),
              mask=Input((2, 1, 30))),
    attention("attention-sinks", Attention(2, 2, 0.5, causal=True, sunk=True), (2, 30, 16), (2, 70, 16), (2, 70, 140),
              mask=Input((2,), True)),
    attention("attention-sink-hidden", Attention(2, 1, 0.5, sunk=True), (3, 40, 6), (3, 2, 3), (3, 2, 5), (3, 1, 1, 2),
              mask=Input((1,))),
    attention("attention-distances", Attention(2, 1, 0.5, window=9, relative=True), (2, 30, 6), (2, 70, 3), (2, 70, 5),
              mask=Input((2, 99), True)),
    attention("attention-twice", Attention(2, 2, 0.5), (6, 9, 8), (6, 5, 8), (6, 5, 10), (3, 1, 9, 5),
              mask=Input((2, 9, 5), True)),
    attention("attention-hidden-first", Attention(1, 1, 0.5), (2, 2, 4), (2, 300, 4), (2, 300, 4),
              mask=Input((300,), low=HIDING, high=0.0)),
]  # fmt: skip

"""Counters that a context keeps for blocks which share results: zero before a kernel and behind it."""

from __future__ import annotations

MOST_COUNTERS = 4096
"""Of `counter_bytes` of plan.h."""

"""Measures a built engine and its peers side by side: one run, the same inputs, the same device.

    Contest --contest.compete--> Comparison

Every contestant has a process of its own (`process.py`), the engine too. All of a batch get ready one after the other
and then take turns in rounds, so that clocks and temperature treat them alike. A peer is one file in `peers/` behind
the protocol of `contestant.py`; another package adds peers through the entry-point group `bolt_build.peers`.

Scripts under `benchmarks/` stand on the same: `turns.py` seats other contestants than those of one recipe, and
`replays.py` times built engines in turns in one process, where they differ by little.
"""

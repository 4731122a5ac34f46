"""From a recipe to its lock: what tuning plans, compiles, measures and chooses; `run.py` is the whole of it."""

"""From a recipe to the plan of a target: its model, the lock's part, the engine plan, and `plan.json`."""

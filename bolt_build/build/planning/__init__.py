"""From a recipe to `plan.json`: its model, the lock's part, the engine plan, and the tasks of a target."""

"""From graphs to an engine plan: `bolt_build.planner.plan_engine.plan_engine` is the way in.

Nothing is imported here: `planner.tasks` is on the path of a build with nothing to do, which must not load NumPy.
"""

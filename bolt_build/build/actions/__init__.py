"""What tasks do in Python: one module an action, so that what an action depends on is what its module imports."""

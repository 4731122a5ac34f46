"""From measurements to winners, and to a target's part of the lock: pure functions."""

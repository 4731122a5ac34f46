"""SCons's process, and the one way in which a task runs in it."""

"""From plans to files: tasks, SCons, the cache, and the wrapper that every task runs in.

`bolt_build.build.builder.build` is the way in. Nothing is imported here: a build with
nothing to do stays quick.
"""

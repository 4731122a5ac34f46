"""The command line: one module a verb, each with NAME, `add_arguments(parser)` and `run(args) -> int`."""

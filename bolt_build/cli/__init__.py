"""The command line: one module a verb, each with NAME, HELP, `add_arguments(parser)` and `run(args) -> int`."""

"""The command line: one module a verb, each with `add_arguments(parser)` and `run(args) -> int` (`cli.verbs`)."""

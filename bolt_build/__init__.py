"""bolt-build: a declarative build system for inference engines."""

__version__ = "0.1.0"

"""`bolt-build schema`: the JSON Schema of recipes, for editors."""

from __future__ import annotations

import argparse
import json
import sys

from bolt_build.errors import ExitCode
from bolt_build.graph import zoo
from bolt_build.schema.editor_schema import editor_schema
from bolt_build.schema.validate import Schema
from bolt_build.targets import all_targets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace) -> int:
    """Prints the schema. Raises BoltError where an installed package's target cannot be used."""
    sys.stdout.write(schema_text())
    return int(ExitCode.OK)


def schema_text() -> str:
    """The schema of this installation as JSON, ended by a line break."""
    schema: Schema = editor_schema(all_targets(), zoo.names())
    return json.dumps(schema, indent=2) + "\n"

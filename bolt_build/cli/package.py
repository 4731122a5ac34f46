"""`bolt-build package`: built engines as archives that CMake and pkg-config find, and as Python wheels."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bolt_build.cli.common_arguments import add_place, add_recipes, file_name, options_of, read_recipes
from bolt_build.cli.engines_here import engines_of
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.tables import byte_text
from bolt_build.user_files import shell_word
from bolt_build.workflows.built import BuiltEngine
from bolt_build.workflows.image import check_place, engine_image
from bolt_build.workflows.packaging import package
from bolt_build.workflows.publishing import check_programs, checked_repository, push, sign
from bolt_build.workflows.wheel import checked_version


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser)
    add_place(parser)
    parser.add_argument(
        "--out", type=file_name, default=Path(), metavar="DIR", help="where the archives go (default: here)"
    )
    parser.add_argument(
        "--version",
        type=_version,
        metavar="X.Y.Z",
        help="version of the packages (default: the wheel's is its contents')",
    )
    parser.add_argument(
        "--oci", action="store_true",
        help="also write an OCI image layout; comparison, bill of materials and provenance refer to it",
    )  # fmt: skip
    parser.add_argument(
        "--push", type=_repository, metavar="REGISTRY/PATH",
        help="send the image, and what refers to it, to REGISTRY/PATH/NAME-TARGET, with oras",
    )  # fmt: skip
    parser.add_argument(
        "--sign", type=file_name, metavar="KEY.pem", help="sign the image's layout with this key, with model-signing"
    )


def run(args: argparse.Namespace) -> int:
    """Writes two archives and a wheel a target, and an image where one is asked for.

    Raises BoltError where an engine is not built, stale, or departs, or an image would replace something else.
    """
    recipes = read_recipes(args)
    if not args.out.is_dir():
        hint = f"make it with: mkdir -p {shell_word(args.out)}"
        message = "there is no such directory"
        if os.path.lexists(args.out):
            message, hint = "is no directory", "name one with --out DIR"
        raise BoltError([Diagnostic("no-place", message, subject=str(args.out), hint=hint)], ExitCode.USAGE)
    check_programs(image=_wants_image(args), push=args.push is not None, key=args.sign)
    built = [(recipe.name, engine) for recipe in recipes for engine in engines_of(recipe, options_of(args))]
    if _wants_image(args):
        for _, engine in built:
            check_place(engine, args.out)
    for name, engine in built:
        _pack(name, engine, args)
    return int(ExitCode.OK)


def _pack(recipe: str, engine: BuiltEngine, args: argparse.Namespace) -> None:
    packed = package(engine, args.out, args.version)
    paths = [packed.archive, packed.debug, packed.wheel]
    image = None
    if _wants_image(args):
        image = engine_image(engine, args.out, packed.verified, args.version)
        paths += [image.bill, image.provenance, image.layout]
    if image is not None and args.sign is not None:
        paths.append(sign(image, args.sign))
    for path in paths:
        sys.stdout.write(f"{byte_text(_size(path)):>9}  {path}\n")
    if image is not None and args.push is not None:
        sys.stdout.write(f"{'pushed':>9}  {push(image, args.push)}\n")
    if packed.verified is None:
        sys.stderr.write(f"{recipe}/{packed.target}: packed without having been verified here\n")


def _wants_image(args: argparse.Namespace) -> bool:
    return args.oci or args.push is not None or args.sign is not None


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else (path,)) if file.is_file())


def _repository(text: str) -> str:
    try:
        return checked_repository(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _version(text: str) -> str:
    try:
        return checked_version(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

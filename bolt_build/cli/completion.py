"""`bolt-build completion`: a script by which bash completes verbs, options, targets and files."""

from __future__ import annotations

import argparse
import sys

from bolt_build.cli.common_arguments import one_of
from bolt_build.cli.verb_parser import VerbParser
from bolt_build.cli.verbs import VERBS, verb_named
from bolt_build.errors import ExitCode
from bolt_build.targets import all_targets

NAME = "completion"
HELP = "print what makes bash complete verbs, options, targets and files"

_BASH = """\
# bolt-build completion bash: eval "$(bolt-build completion bash)", or put this text where bash looks for completions.
_bolt_build() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=build options=
  local verbs="{verbs}"
  if ((COMP_CWORD > 1)) && [[ " $verbs " == *" ${{COMP_WORDS[1]}} "* ]]; then verb=${{COMP_WORDS[1]}}; fi
  case $verb in
{cases}
  esac
  COMPREPLY=()
  if [[ $before == --target ]]; then
    mapfile -t COMPREPLY < <(compgen -W "{targets}" -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    if ((COMP_CWORD == 1)); then
      mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -W "$verbs" -- "$word")
    fi
  fi
}}
complete -o filenames -F _bolt_build bolt-build
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", type=one_of("bash"), metavar="{bash}", help="which shell")


def run(args: argparse.Namespace) -> int:
    """Prints the script, which names what this version has."""
    cases = "\n".join(f'    {verb}) options="{" ".join(_options(verb))}" ;;' for verb in VERBS)
    targets = " ".join(target.name for target in all_targets())
    sys.stdout.write(_BASH.format(verbs=" ".join(VERBS), cases=cases, targets=targets))
    return int(ExitCode.OK)


def _options(verb: str) -> list[str]:
    return VerbParser(verb_named(verb)).options()

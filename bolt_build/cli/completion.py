"""`bolt-build completion`: a script by which a shell completes verbs, options, targets, keys of recipes and files.

The scripts ask bolt-build itself, by this verb with the words that are there. It answers with a word a line, and in the
last line whether names of files may stand there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bolt_build.cli.common_arguments import one_of
from bolt_build.errors import ExitCode

_FILES, _WORDS = ":files", ":words"

_BASH = """\
# eval "$(bolt-build completion bash)", or put this text where bash looks for completions.
_bolt_build() {
  local answer
  mapfile -t answer < <("${COMP_WORDS[0]}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=()
  ((${#answer[@]})) || return 0
  local how=${answer[-1]}
  unset 'answer[-1]'
  if [[ $how == :files ]]; then mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"); fi
  COMPREPLY+=("${answer[@]}")
  if [[ ${answer[0]-} == *= ]] && [[ $(type -t compopt) ]]; then compopt -o nospace 2>/dev/null || true; fi
}
complete -o filenames -F _bolt_build bolt-build
"""

_ZSH = """\
#compdef bolt-build
# eval "$(bolt-build completion zsh)", or put this text as _bolt-build into a folder of $fpath.
_bolt_build() {
  local -a answer
  local how word
  answer=("${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  how=${answer[-1]}
  for word in "${(@)answer[1,-2]}"; do
    if [[ $word == *= ]]; then compadd -S '' -- "$word"; else compadd -- "$word"; fi
  done
  if [[ $how == :files ]]; then _files; fi
}
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
  _bolt_build "$@"
else
  whence compdef >/dev/null || { autoload -Uz compinit && compinit; }
  compdef _bolt_build bolt-build
fi
"""

_FISH = """\
# bolt-build completion fish | source, or put this text into ~/.config/fish/completions/bolt-build.fish
function __bolt_build_complete
    set -l before (commandline -opc)
    set -l last (commandline -ct)
    set -l program $before[1]
    set -e before[1]
    set -l answer ($program completion fish -- $before "$last" 2>/dev/null)
    for word in $answer
        switch $word
            case :words
            case :files
                __fish_complete_path "$last"
            case '*'
                echo $word
        end
    end
end
complete -c bolt-build -f -a '(__bolt_build_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", **one_of(*_SCRIPTS), help="which shell")
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Prints the script, or, for the words of a command line behind `--`, what may stand in place of the last."""
    if not args.words:
        sys.stdout.write(_SCRIPTS[args.shell])
        return int(ExitCode.OK)
    # It loads recipes and their schema: a script needs them not.
    from bolt_build.cli.completing import offer

    words, cut = _joined(args.words) if args.shell == "bash" else (args.words, 0)
    found = offer(words)
    lines = [*(word[cut:] for word in found.words), _FILES if found.files else _WORDS]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(ExitCode.OK)


def _joined(words: Sequence[str]) -> tuple[list[str], int]:
    """The words as they were typed: bash cuts them at "=". And so many letters of the last one it does not ask for."""
    found: list[str] = []
    cut = 0
    for word in words:
        if found and (word == "=" or found[-1].endswith("=")):
            cut = len(found[-1]) + (word == "=")
            found[-1] += word
        else:
            found.append(word)
            cut = 0
    return found, cut

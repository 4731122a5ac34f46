"""The command line of one verb: what is mistyped is answered with what was meant, all of it at once."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

from bolt_build.cli.verbs import VERBS, verb_named
from bolt_build.errors import ExitCode

_NEGATIVE_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")


class VerbParser(argparse.ArgumentParser):
    """Reads the words behind a verb. Options may stand between recipes, and are never abbreviated."""

    def __init__(self, verb: str) -> None:
        super().__init__(prog=f"bolt-build {verb}", description=VERBS[verb], allow_abbrev=False)
        self._verb = verb
        verb_named(verb).add_arguments(self)

    def arguments(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments that `words` give. Raises SystemExit (2) where they are wrong, having said all that is."""
        unknown = [word for word in _options(words) if not self.knows(word)]
        if unknown:
            # An option that is mistyped is the cause of what else is missing: nothing more is worth saying.
            self._refuse([f"there is no option '{word}'{self._meant(word)}" for word in dict.fromkeys(unknown)])
        # Reading intermixed words takes two passes, and the second knows nothing of a `--` in front of a recipe.
        read = self.parse_known_args if "--" in words else self.parse_known_intermixed_args
        args, extra = read(words)
        if extra:
            self._refuse([f"'{word}' is one word too many" for word in extra])
        return args

    def knows(self, word: str) -> bool:
        """True for an option of this verb, or several of one letter each written as one."""
        known = self._option_string_actions
        return word in known or (not word.startswith("--") and word[:2] in known)

    def options(self) -> list[str]:
        """Every option of this verb, in the order of its help."""
        return list(self._option_string_actions)

    def option(self, word: str) -> argparse.Action | None:
        """The option of this name, None where there is none."""
        return self._option_string_actions.get(word)

    def positional(self) -> argparse.Action | None:
        """The first argument that is no option, None where there is none."""
        return next(iter(self._get_positional_actions()), None)

    def error(self, message: str) -> NoReturn:
        """Says what argparse found, without the options that the verb takes: of many verbs those fill a screen."""
        self._refuse([message])

    def _meant(self, word: str) -> str:
        near = difflib.get_close_matches(word, self._option_string_actions, 1, 0.6)
        if near:
            return f"; did you mean '{near[0]}'?"
        others = [name for name in VERBS if name != self._verb and VerbParser(name).knows(word)]
        return f": {', '.join(others)} {'has' if len(others) == 1 else 'have'} it" if others else ""

    def _refuse(self, complaints: Sequence[str]) -> NoReturn:
        text = "".join(f"{self.prog}: error: {complaint}\n" for complaint in complaints)
        self.exit(int(ExitCode.USAGE), f"{text}'{self.prog} --help' lists what it takes.\n")


def _options(words: Sequence[str]) -> list[str]:
    """The words that argparse takes for options, without their values."""
    before = words[: words.index("--")] if "--" in words else words
    found = [word for word in before if word.startswith("-") and len(word) > 1 and " " not in word.partition("=")[0]]
    return [word.partition("=")[0] for word in found if not _NEGATIVE_NUMBER.fullmatch(word)]

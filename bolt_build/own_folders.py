"""The user's own folders: for what may be shared and thrown away, and for what is this machine's alone."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path | None:
    """`$XDG_CACHE_HOME/bolt-build`, or `~/.cache/bolt-build`; None where there is neither."""
    return _folder("XDG_CACHE_HOME", "~/.cache")


def state_folder() -> Path | None:
    """`$XDG_STATE_HOME/bolt-build`, or `~/.local/state/bolt-build`; None where there is neither."""
    return _folder("XDG_STATE_HOME", "~/.local/state")


def config_folder() -> Path | None:
    """`$XDG_CONFIG_HOME/bolt-build`, or `~/.config/bolt-build`; None where there is neither."""
    return _folder("XDG_CONFIG_HOME", "~/.config")


def _folder(variable: str, otherwise: str) -> Path | None:
    """As the XDG rules have it, a relative path in the variable does not count."""
    named = os.environ.get(variable, "")
    base = named if os.path.isabs(named) else os.path.expanduser(otherwise)
    return Path(base) / "bolt-build" if os.path.isabs(base) else None


def who_else_writes(status: os.stat_result, *, any_owner: bool = False) -> str | None:
    """Who else than the user, and root, can have written a file or into a folder, to stand behind its name; None where
    nobody can. `any_owner`: whoever owns it may."""
    if status.st_mode & _OTHERS_WRITE:
        return "can be written by others"
    if any_owner or status.st_uid in (os.geteuid(), 0):
        return None
    return f"belongs to {_user(status.st_uid)}"


def _user(number: int) -> str:
    try:
        return f"the user '{pwd.getpwuid(number).pw_name}'"
    except KeyError:
        return f"the user {number}"


def is_own(file: Path) -> bool:
    """False where somebody else can have written the file, or put it into its folder. Raises OSError."""
    return all(who_else_writes(os.lstat(path)) is None for path in (file.parent, file))


def make_own_folder(folder: Path) -> None:
    """A folder, if it is not there, that nobody else can enter until its owner allows it. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)

"""What the machine offers for building: compilers and libraries, where they are, and what mends their absence.

Wheels of the running environment are looked at first, then PATH and the usual prefixes. What a program says of
itself is remembered in the user's state directory by its path, size and time of change, so that a build with nothing
to do starts no process.
"""

from bolt_build.toolchain.probe import known_tools, probe
from bolt_build.toolchain.tool import Tool, Toolchain

__all__ = ["Tool", "Toolchain", "known_tools", "probe"]

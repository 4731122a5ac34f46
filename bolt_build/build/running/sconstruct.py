"""The SConstruct that a build hands to its SCons child. Not imported: SCons executes it."""

import sys

sys.path.insert(0, ARGUMENTS["package"])  # type: ignore[name-defined]  # noqa: F821

from bolt_build.build.running.scons_session import open_session

open_session(ARGUMENTS["request"])  # type: ignore[name-defined]  # noqa: F821

"""A GPU of sm_90a without one: `src/` is a CUDA runtime, and as much of the driver as Python asks, whose device
interprets PTX. `library` compiles it, `toolkit` makes of it and of the real compiler what CUDACXX may name.

What engines and kernels compute and where they write can be tested so, in any order of warps and copies; the time that
they take cannot.
"""

from bolt_build.emulator.library import SOURCES, compile_flags, cxx_flags, default_folder, library, link_flags
from bolt_build.emulator.toolkit import environment, in_use

__all__ = ["SOURCES", "compile_flags", "cxx_flags", "default_folder", "environment", "in_use", "library", "link_flags"]

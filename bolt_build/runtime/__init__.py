"""The hand-written C++ that every engine contains (`src/`), the runner program (`runner/`), and the Python loader.

Linking `lib<name>.so`: the emitted `engine.cpp` and `plan_b*.cpp`, and `sources(target.where)`, all compiled with
`-std=c++17 -fvisibility=hidden`, `include_dir()`, the families' include directories and the target's flags; linked with
`-Wl,--version-script=exports.map` (emitted too), which hides the instances of library templates as well. So any number
of engines live in one program as shared libraries; their objects do not link together statically, since each has the
runtime under the same names.
The runner: `runner_sources()` and the emitted `runner.cpp`, linked with `lib<name>.so` and `-Wl,-rpath,$ORIGIN`.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def include_dir() -> Path:
    """Directory of `bolt_engine.h` (the public ABI) and of `bolt/*.h`."""
    return _HERE / "include"


def sources(where: str) -> tuple[Path, ...]:
    """C++ units of every engine whose tensors live in `where` (`Target.where`), sorted.

    `core.cpp` includes all of `src/` but CRC-32, which the runner has too, and the device layers, of which one kind of
    memory has one. Raises ValueError where there is no layer for `where`.
    """
    layer = _HERE / "src" / f"device_{where}.cpp"
    if not layer.is_file():
        raise ValueError(f"the runtime has no device layer for '{where}'")
    return _HERE / "src" / "core.cpp", _HERE / "src" / "crc32.cpp", layer


def runner_sources() -> tuple[Path, ...]:
    """C++ units of the runner program but the emitted `runner.cpp`, sorted: two include all of `runner/`."""
    return *(_HERE / "runner" / f"{unit}.cpp" for unit in ("arrays", "commands")), _HERE / "src" / "crc32.cpp"


def runner_include_dir() -> Path:
    """Directory of `runner.h`, which the emitted `runner.cpp` includes."""
    return _HERE / "runner"

"""The contestants by name. Another package adds some through the entry-point group `bolt_build.peers`, each entry point
naming a `Peer`."""

from __future__ import annotations

from importlib.metadata import entry_points

from bolt_build.bench.contestant import Peer
from bolt_build.bench.peers.engine import EnginePeer
from bolt_build.bench.peers.onnxruntime import OnnxruntimePeer
from bolt_build.bench.peers.torch_compile import TorchCompilePeer
from bolt_build.bench.peers.torch_eager import TorchGraphPeer, TorchPeer
from bolt_build.errors import BoltError, Diagnostic, ExitCode

ENTRY_POINTS = "bolt_build.peers"
ENGINE = EnginePeer.name
_OWN: tuple[Peer, ...] = (EnginePeer(), TorchPeer(), TorchGraphPeer(), TorchCompilePeer(), OnnxruntimePeer())


def all_peers() -> dict[str, Peer]:
    """Every contestant by name, the engine first. Raises BoltError where a package's entry point cannot be used."""
    found = {peer.name: peer for peer in _OWN}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            peer: Peer = entry.load()
            found.setdefault(peer.name, peer)
        except Exception as error:  # another package's code: whatever it raises, the user must learn which one it is
            message = f"the entry point '{entry.name}' ({entry.value}) of {ENTRY_POINTS} cannot be used: {error}"
            raise BoltError([Diagnostic("broken-entry-point", message)]) from error
    return found


def check_peers(names: tuple[str, ...]) -> None:
    """Raises BoltError (exit code 2) with every name that is no peer's."""
    known = [name for name in all_peers() if name != ENGINE]
    hint = f"peers: {', '.join(known)}"
    wrong = [Diagnostic("unknown-peer", f"there is no peer '{name}'", hint=hint) for name in names if name not in known]
    if wrong:
        raise BoltError(wrong, ExitCode.USAGE)

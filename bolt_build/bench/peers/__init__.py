"""The contestants by name. Another package adds some through the entry-point group `bolt_build.peers`, each entry point
naming a `Peer` of its own name."""

from __future__ import annotations

from bolt_build.bench.contestant import Peer
from bolt_build.bench.peers.engine import EnginePeer
from bolt_build.bench.peers.onnxruntime import OnnxruntimePeer
from bolt_build.bench.peers.torch_compile import TorchCompilePeer
from bolt_build.bench.peers.torch_eager import TorchGraphPeer, TorchPeer
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.plugins import Found, has, plugged

ENGINE = EnginePeer.name
_OWN: tuple[Peer, ...] = (
    EnginePeer(), TorchPeer(), TorchGraphPeer(), TorchCompilePeer(),
    TorchCompilePeer("torch-reduce-overhead", "reduce-overhead"), OnnxruntimePeer(),
)  # fmt: skip


def all_peers() -> dict[str, Peer]:
    """Every contestant by name, the engine first. Raises BoltError where a package's peer cannot be used."""
    return {peer.name: peer for peer in (*_OWN, *(each.thing for each in plugged_peers().checked()))}


def plugged_peers() -> Found[Peer]:
    """The peers of other packages, and what is wrong with some."""
    own = [peer.name for peer in _OWN]
    return plugged(group="bolt_build.peers", own=own, check=has("Peer", "name", "version", "enter"))


def check_peers(names: tuple[str, ...]) -> None:
    """Raises BoltError (exit code 2) with every name that is no peer's."""
    known = [name for name in all_peers() if name != ENGINE]
    hint = f"peers: {', '.join(known)}"
    wrong = [Diagnostic("unknown-peer", f"there is no peer '{name}'", hint=hint) for name in names if name not in known]
    if wrong:
        raise BoltError(wrong, ExitCode.USAGE)

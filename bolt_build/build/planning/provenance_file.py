"""`provenance.json`: the manifest as the engine carries it, written by planning into a target's directory."""

PROVENANCE = "provenance.json"

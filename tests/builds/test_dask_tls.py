"""A scheduler that wants certificates: compilations go through it for whoever has one, and for nobody else."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="pip install 'bolt-build[dask,test]'")
pytest.importorskip("cryptography", reason="pip install 'bolt-build[test]'")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from dask_graphs import DaskProcesses, Sources, answers, free_port, notes

from bolt_build.scratch import PREFIX

ROLES = ("SCHEDULER", "WORKER", "CLIENT")
_DAY = datetime.timedelta(days=1)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bolt-build test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - _DAY, now + _DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )  # fmt: skip
    return paths


def use(monkeypatch: pytest.MonkeyPatch, certificate: Path, key: Path) -> None:
    """As Dask's configuration has them, for all processes from now on."""
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TLS__CA_FILE", str(certificate))
    for role in ROLES:
        monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT", str(certificate))
        monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY", str(key))


@pytest.mark.large
def test_certificates_let_in_those_who_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's own certificate does not: the build goes on here, and says so."""
    places: dict[str, Path] = {}
    for name in ("ours", "theirs", "dask", "reference", "through", "stranger"):
        places[name] = tmp_path / name
        places[name].mkdir()
    ours, theirs = write_certificate(places["ours"]), write_certificate(places["theirs"])
    reference = Sources(places["reference"], ("a",))
    assert reference.build(None)[0].failed == ()
    use(monkeypatch, *ours)
    fleet = DaskProcesses(places["dask"], free_port(), "tls")
    try:
        fleet.start("scheduler")
        answers(fleet.port)
        fleet.start("one")
        sources = Sources(places["through"], ("a",), wait=f"pwd > {tmp_path}/where")
        result, told = sources.build(fleet.address)
        assert (result.failed, notes(told), sources.digests) == ((), [], reference.digests)
        assert f"/{PREFIX}" in (tmp_path / "where").read_text()
        use(monkeypatch, *theirs)
        stranger = Sources(places["stranger"], ("a",))
        result, told = stranger.build(fleet.address)
        assert (result.failed, stranger.digests) == ((), reference.digests)
        assert notes(told) == [
            f"the scheduler {fleet.address} does not answer: what it does not do is done here"
        ]  # fmt: skip
    finally:
        fleet.stop()

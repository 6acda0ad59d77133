"""Certificates of a private authority, made for one test and good for an hour on loopback."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LOOPBACK: Final = ipaddress.ip_address("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Authority:
    """Somebody whom no system trusts. `ca_file` is the certificate that a client must be given."""

    ca_file: Path
    server: ssl.SSLContext


def private_authority(folder: Path, name: str = "private") -> Authority:
    """Make an authority and a server of loopback that it vouches for."""
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _named(f"{name} authority")
    authority = x509.BasicConstraints(ca=True, path_length=None)
    ca = _certificate(issuer, issuer, ca_key.public_key(), authority).sign(ca_key, hashes.SHA256())
    nobody = x509.BasicConstraints(ca=False, path_length=None)
    builder = _certificate(_named("127.0.0.1"), issuer, key.public_key(), nobody).add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(_LOOPBACK)]), critical=False
    )
    certificate = builder.sign(ca_key, hashes.SHA256())
    ca_file, chain = folder / f"{name}-ca.pem", folder / f"{name}-server.pem"
    ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain)
    return Authority(ca_file, server)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, may: x509.BasicConstraints
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(may, critical=True)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

# SPDX-License-Identifier: Apache-2.0
"""The cluster's own certificate authority: it signs for one cluster and is never trusted elsewhere.

Every key is written 0600. Nothing is renewed: a cluster of this kind lives for days.
"""

import base64
import json
import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)


class Authority:
    """Writes NAME.crt and NAME.key files into one directory; its own are ca.crt and ca.key."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name("headway-cluster-ca", None)
        unsigned = (
            _builder(self._subject, self._subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
        )
        self._write("ca", unsigned.sign(self._key, hashes.SHA256()), self._key)

    @property
    def certificate(self) -> Path:
        return self.directory / "ca.crt"

    def issue(
        self, name: str, user: str, group: str | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        """A certificate for a client (`user` in `group`), and for a server when it has hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        unsigned = (
            _builder(_name(user, group), self._subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs=False), critical=True)
        )
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            unsigned = unsigned.add_extension(names, critical=False)
        unsigned = unsigned.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        self._write(name, unsigned.sign(self._key, hashes.SHA256()), key)

    def signing_key(self, name: str) -> None:
        """A bare key pair, NAME.key and NAME.pub, for service account tokens."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        write_private(self.directory / f"{name}.key", _pem(key))
        (self.directory / f"{name}.pub").write_bytes(public)

    def kubeconfig(self, target: Path, name: str, server: str) -> None:
        """A kubeconfig for the client NAME with its certificates inside, for its owner only."""
        user = {
            "client-certificate-data": self._encoded(f"{name}.crt"),
            "client-key-data": self._encoded(f"{name}.key"),
        }
        cluster = {"server": server, "certificate-authority-data": self._encoded("ca.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "headway", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "headway", "context": {"cluster": "headway", "user": name}}],
            "current-context": "headway",
        }
        write_private(target, json.dumps(document, indent=2).encode() + b"\n")

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self.directory / name).read_bytes()).decode()

    def _write(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        write_private(self.directory / f"{name}.key", _pem(key))
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        (self.directory / f"{name}.crt").write_bytes(pem)


def write_private(path: Path, content: bytes) -> None:
    """0600 from the first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCK_SKEW,
        not_valid_after=now + LIFETIME,
    )


def _name(user: str, group: str | None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

"""The certificates of a cluster and of a server: one authority, one certificate, one token.

    authority.pem       who is trusted; its key is not kept, so nobody can issue another certificate
    certificate.pem     what the server, the scheduler, the workers and the clients of Dask show
    key.pem             the certificate's key
    token               what users of the server show

Who has ``key.pem`` is let in by the scheduler and may run any program on the workers. Users of the
server get ``authority.pem`` and ``token`` only.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.base.files import sync
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.service.cluster.dask_settings import INSTALL, load_distributed

AUTHORITY = "authority.pem"
CERTIFICATE = "certificate.pem"
KEY = "key.pem"
TOKEN = "token"

_VALID_DAYS = 825  # the longest that browsers take
_TOKEN_BYTES = 32
_LONGEST_NAME = 253
_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
#: A clock that is late shall not refuse a new certificate.
_CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Certificates:
    """The files of a folder of certificates."""

    authority: Path
    certificate: Path
    key: Path
    token: str


def make_certificates(folder: Path, hosts: Sequence[str]) -> Certificates:
    """Make an authority, a certificate for ``hosts`` (names and addresses), its key and a token.

    Raises ClusterError if the folder has any file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ClusterError(
            f"{folder} is not empty; name an empty folder, because anyone who uses the "
            "certificates in this one would be locked out"
        )
    authority, certificate, key = _issue(hosts)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # All files at once: a folder with some of them is of no use, and in the way.
        with TemporaryFolder(folder.name, folder.parent, hidden=True) as fresh:
            _write(fresh / AUTHORITY, authority, 0o644)
            _write(fresh / CERTIFICATE, certificate, 0o644)
            _write(fresh / KEY, key, 0o600)
            _write(fresh / TOKEN, f"{token}\n", 0o600)
            sync(fresh)
            fresh.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise ClusterError(
            f"cannot write certificates to {folder}: {error.strerror}; name another folder"
        ) from error
    return Certificates(folder / AUTHORITY, folder / CERTIFICATE, folder / KEY, token)


def read_certificates(folder: Path) -> Certificates:
    """The files of a folder that ``make_certificates`` made; ClusterError if they do not fit."""
    _check_complete(folder)
    token_path = folder / TOKEN
    try:
        token = token_path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"cannot read {token_path}: {error}; make new certificates") from error
    if not token:
        raise ClusterError(f"{token_path} is empty; make new certificates in another folder")
    return Certificates(folder / AUTHORITY, folder / CERTIFICATE, folder / KEY, token)


def security(folder: Path) -> Any:
    """A ``distributed.security.Security`` that lets in only who has this folder's key."""
    _check_complete(folder)
    certificate, key = str(folder / CERTIFICATE), str(folder / KEY)
    return _security(str(folder / AUTHORITY), certificate, key)


def private_security() -> Any:
    """The same with certificates that exist in this process and its workers only."""
    return _security(*_issue(["localhost"]))


def _security(authority: str, certificate: str, key: str) -> Any:
    load_distributed()
    from distributed.security import Security

    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=authority,
        **{f"tls_{role}_cert": certificate for role in roles},
        **{f"tls_{role}_key": key for role in roles},
    )


def _check_complete(folder: Path) -> None:
    """A worker needs no token; everybody needs the three other files, readable and of one kind."""
    for name in (AUTHORITY, CERTIFICATE, KEY):
        path = folder / name
        if not path.is_file():
            raise ClusterError(
                f"{folder} has no {name}; make certificates (utvm serve --make-certificates DIR) "
                "and copy the folder here"
            )
        if name == KEY and path.stat().st_mode & 0o077:
            raise ClusterError(f"other users may read {path}; run: chmod 600 {path}")
    import ssl

    try:
        context = ssl.create_default_context(cafile=str(folder / AUTHORITY))
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    except (ssl.SSLError, OSError) as error:
        raise ClusterError(
            f"the certificates in {folder} cannot be used: {error}; copy the whole folder again"
        ) from error


def _write(path: Path, text: str, mode: int) -> None:
    """A new file with these rights from its first moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _issue(hosts: Sequence[str]) -> tuple[str, str, str]:
    """An authority, a certificate that it signs, and its key, in PEM; its own key is forgotten."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise ClusterError(f"cryptography is not installed; install it: {INSTALL}") from error

    def named(name: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def builder(subject: Any, public_key: Any) -> Any:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(trusted), False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), False)
        )

    def usage(*, signs_certificates: bool) -> Any:
        return x509.KeyUsage(
            digital_signature=not signs_certificates,
            key_cert_sign=signs_certificates,
            crl_sign=signs_certificates,
            **dict.fromkeys(
                (
                    *("content_commitment", "key_encipherment", "data_encipherment"),
                    *("key_agreement", "encipher_only", "decipher_only"),
                ),
                False,
            ),
        )

    now = datetime.datetime.now(datetime.timezone.utc)
    # The name is unique: a computer may trust the authorities of several servers.
    issuer = named(f"utvm_deploy {secrets.token_hex(4)}")
    authority_key = ec.generate_private_key(ec.SECP256R1())
    trusted = authority_key.public_key()
    authority = (
        builder(issuer, trusted)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(usage(signs_certificates=True), True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = [_general_name(x509, host) for host in dict.fromkeys([*hosts, "localhost"])]
    names += [_general_name(x509, one) for one in ("127.0.0.1", "::1") if one not in hosts]
    certificate = (
        builder(named("utvm_deploy"), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(usage(signs_certificates=False), True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            False,
        )
        .add_extension(x509.SubjectAlternativeName(names), False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return (
        authority.public_bytes(pem).decode(),
        certificate.public_bytes(pem).decode(),
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


def _general_name(x509: Any, host: str) -> Any:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if len(host) <= _LONGEST_NAME and _NAME.fullmatch(host):
            return x509.DNSName(host)
    else:
        if not address.is_unspecified:  # 0.0.0.0 is where to listen, and not what users type
            return x509.IPAddress(address)
    raise ClusterError(
        f"{host!r} is neither a name nor an address of a machine; give it as users type it"
    )

"""The certificates of a cluster and of a server: what is written, and who is let in."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.service.cluster import certificates as module
from utvm_deploy.service.cluster.certificates import make_certificates, read_certificates, security

TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates") / "new"
    make_certificates(folder, ["bench.example", "192.0.2.7"])
    return folder


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_what_is_written(folder: Path) -> None:
    found = read_certificates(folder)
    assert found.key.stat().st_mode & 0o777 == 0o600
    assert (folder / "token").stat().st_mode & 0o777 == 0o600
    assert (folder / "token").read_text() == f"{found.token}\n"
    assert len(found.token) >= 43  # 256 bits
    # The authority's key is nowhere: nobody can make a second certificate.
    texts = [path.read_text() for path in folder.iterdir()]
    assert sum(text.count("PRIVATE KEY-----") for text in texts) == 2  # its begin and its end
    assert {path.name for path in folder.iterdir()} == {
        *("authority.pem", "certificate.pem", "key.pem", "token")
    }


def test_two_folders_have_nothing_in_common(folder: Path, tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other", ["bench.example"])
    assert other.token != read_certificates(folder).token
    assert other.authority.read_text() != (folder / "authority.pem").read_text()


def test_nothing_is_overwritten(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ClusterError, match="is not empty; name an empty folder"):
        make_certificates(folder, ["bench.example"])
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("host", ["a b", "bücher.example", "", "0.0.0.0", "a..b", "x" * 64])
def test_hosts_that_are_none(host: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="neither a name nor an address"):
        make_certificates(tmp_path / "new", [host])
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="cannot write certificates to"):
        make_certificates(tmp_path / "file" / "new", ["bench.example"])


@pytest.mark.parametrize("host", ["bench.example", "192.0.2.7", "localhost", "127.0.0.1"])
def test_clients_that_check_the_name_accept_it(folder: Path, host: str) -> None:
    assert greeting(folder, host, with_certificate=False) == b"hello"


def test_another_name_is_not_accepted(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        greeting(folder, "evil.example", with_certificate=False)


def test_openssl_accepts_the_chain(folder: Path) -> None:
    done = subprocess.run(
        [
            *("openssl", "verify", "-x509_strict", "-purpose", "sslserver"),
            *("-CAfile", "authority.pem", "certificate.pem"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "certificate.pem: OK\n", done.stderr


def test_who_has_no_certificate_or_another_is_refused(folder: Path, tmp_path: Path) -> None:
    assert greeting(folder, "localhost", with_certificate=True, asks=True) == b"hello"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        greeting(folder, "localhost", with_certificate=False, asks=True)
    make_certificates(tmp_path / "other", ["localhost"])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        greeting(folder, "localhost", with_certificate=True, asks=True, mine=tmp_path / "other")


def greeting(
    folder: Path,
    host: str,
    *,
    with_certificate: bool,
    asks: bool = False,
    mine: Path | None = None,
) -> bytes:
    """What a client gets of a server with these certificates; ``asks``: as Dask's scheduler."""
    keys = security(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if asks:
        context = keys.get_listen_args("scheduler")["ssl_context"]
    else:
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(TIMEOUT_S)
                try:
                    with context.wrap_socket(connection, server_side=True) as wrapped:
                        wrapped.sendall(b"hello")
                except (ssl.SSLError, OSError):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            client = ssl.create_default_context(cafile=str(folder / "authority.pem"))
            if with_certificate:
                given = mine or folder
                client.load_cert_chain(given / "certificate.pem", given / "key.pem")
            with (
                socket.create_connection(server.getsockname(), timeout=TIMEOUT_S) as connection,
                client.wrap_socket(connection, server_hostname=host) as wrapped,
            ):
                return wrapped.recv(100)
        finally:
            thread.join()


def test_dask_requires_encryption(folder: Path) -> None:
    keys = security(folder)
    assert keys.require_encryption
    for role in ("client", "scheduler", "worker"):
        assert keys.get_tls_config_for_role(role)["key"] == str(folder / "key.pem")


def remove_key(folder: Path) -> None:
    (folder / "key.pem").unlink()


def open_key(folder: Path) -> None:
    (folder / "key.pem").chmod(0o640)


def cut_certificate(folder: Path) -> None:
    path = folder / "certificate.pem"
    path.write_bytes(path.read_bytes()[:200])


def mix_folders(folder: Path) -> None:
    other = make_certificates(folder.parent / "other", ["localhost"])
    shutil.copy(other.key, folder / "key.pem")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (remove_key, r"has no key\.pem; make certificates"),
        (open_key, r"other users may read .*key\.pem; run: chmod 600"),
        (cut_certificate, "cannot be used"),
        (mix_folders, "cannot be used"),
    ],
)
def test_damaged_folders(
    damage: Callable[[Path], None], sentence: str, folder: Path, tmp_path: Path
) -> None:
    copy = copied(folder, tmp_path)
    damage(copy)
    for read in (security, read_certificates):
        with pytest.raises(ClusterError, match=sentence):
            read(copy)


def test_a_worker_needs_no_token(folder: Path, tmp_path: Path) -> None:
    copy = copied(folder, tmp_path)
    (copy / "token").write_text("\n")
    assert security(copy).require_encryption
    with pytest.raises(ClusterError, match="token is empty"):
        read_certificates(copy)
    (copy / "token").unlink()
    with pytest.raises(ClusterError, match=r"cannot read .*token"):
        read_certificates(copy)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_full_disk_leaves_no_half_folder(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module._write

    def fill(path: Path, text: str, mode: int) -> None:
        if path.name == "key.pem":
            raise OSError(28, "No space left on device")
        write(path, text, mode)

    folder = tmp_path / "new"
    if is_there:
        folder.mkdir()
    monkeypatch.setattr(module, "_write", fill)
    with pytest.raises(ClusterError, match="No space left on device; name another folder"):
        make_certificates(folder, ["bench.example"])
    assert [path.name for path in tmp_path.iterdir()] == ["new"] * is_there
    monkeypatch.undo()
    assert make_certificates(folder, ["bench.example"]) == read_certificates(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]

"""Where the server is and which token it gets: variables, files, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from utvm_deploy.base.errors import ServerError
from utvm_deploy.cli.main import main
from utvm_deploy.service.client.settings import ServerSettings, server_settings

BEYOND = "https://bench.example.org:8086"


@pytest.fixture(autouse=True)
def no_token_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_argument_comes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_SERVER", "http://127.0.0.1:9000/")
    assert server_settings().url == "http://127.0.0.1:9000"
    assert server_settings("http://localhost:9001").url == "http://localhost:9001"


def test_token_of_the_variable_then_of_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert server_settings(BEYOND).token is None
    default = tmp_path / "config" / "utvm_deploy" / "token"
    default.parent.mkdir(parents=True)
    default.write_text("of-the-default-file\n")
    assert server_settings(BEYOND).token == "of-the-default-file"
    other = tmp_path / "secret"
    other.write_text("of-another-file\n")
    monkeypatch.setenv("UTVM_TOKEN_FILE", str(other))
    assert server_settings(BEYOND).token == "of-another-file"
    monkeypatch.setenv("UTVM_TOKEN", "of-the-variable")
    settings = server_settings(BEYOND)
    assert settings.headers == {"Authorization": "Bearer of-the-variable"}
    assert "of-the-variable" not in repr(settings)


@pytest.mark.parametrize("url", ["http://bench.example.org", "http://192.168.1.7:8765"])
def test_token_never_crosses_a_network_unencrypted(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("UTVM_TOKEN", "secret")
    with pytest.raises(ServerError, match=r"unencrypted .* use https://"):
        server_settings(url)
    for local in ("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"):
        assert server_settings(local).token == "secret"


@pytest.mark.parametrize(
    "url",
    [
        "bench.example.org",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host?x=1",
        "http://[",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ServerError, match="is not a server's address"):
        server_settings(url)


def test_no_server_is_named() -> None:
    with pytest.raises(ServerError, match="give --server URL or set UTVM_SERVER"):
        server_settings()


def test_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ServerError) as raised:
        server_settings("https://me:hunter2@host")
    assert "UTVM_TOKEN" in str(raised.value) and "hunter2" not in str(raised.value)


@pytest.mark.parametrize("token", ["two words", "a\nb", "tök"])
def test_what_a_header_cannot_hold_is_no_token(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("UTVM_TOKEN", token)
    with pytest.raises(ServerError, match="UTVM_TOKEN holds no token") as raised:
        server_settings(BEYOND)
    assert token not in str(raised.value)


def test_missing_and_empty_files_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UTVM_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(ServerError, match="none, which does not exist"):
        server_settings(BEYOND)
    (tmp_path / "none").write_text("\n")
    with pytest.raises(ServerError, match="none holds no token"):
        server_settings(BEYOND)
    monkeypatch.setenv("UTVM_TOKEN_FILE", str(tmp_path))
    with pytest.raises(ServerError, match="cannot read the token"):
        server_settings(BEYOND)


def test_authority_is_read_from_the_folder_of_certificates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UTVM_CERTIFICATES", str(tmp_path))
    with pytest.raises(ServerError, match=r"has no authority\.pem"):
        server_settings(BEYOND)
    (tmp_path / "authority.pem").write_text("nonsense")
    settings = server_settings(BEYOND)
    assert settings.authority == tmp_path / "authority.pem"
    with pytest.raises(ServerError, match="is not a certificate of an authority"):
        settings.tls_context()


def test_plain_http_has_no_tls() -> None:
    assert ServerSettings("http://127.0.0.1:1").tls_context() is None
    context = ServerSettings(BEYOND).tls_context()
    assert context is not None and context.check_hostname


@pytest.mark.parametrize(
    "command",
    [
        ["jobs"],
        ["fetch", "0123456789ab"],
        ["compare", "job:0123456789ab", "job:0123456789ab"],
        ["submit", "MODEL", "--job", "inspect"],
    ],
)
def test_without_the_packages_of_clients(
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(b"")
    for name in [one for one in sys.modules if one.startswith("utvm_deploy.service.client.")]:
        if name.rpartition(".")[2] in ("api", "download"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx", None)
    server = ["--server", "http://127.0.0.1:9"]
    assert main([str(model) if one == "MODEL" else one for one in command] + server) == 1
    assert "run pip install 'utvm-deploy[client]'" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["bench..org", "☃.example", "a" * 300, "a\x01b", "xn--"])
def test_names_that_no_host_can_have(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--server", f"http://{host}"]) == 1
    assert "the server's address cannot be used" in capsys.readouterr().err

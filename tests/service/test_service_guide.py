"""docs/guides/service.md: its commands, run as shown."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import Server, serving

from utvm_deploy.cli.main import build_parser
from utvm_deploy.service.client.settings import DEFAULT_PORT

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "guides"
GUIDES = {name: (PAGES / name).read_text("utf-8") for name in ("service.md", "ci.md")}
GUIDE = GUIDES["service.md"]
#: How long a command may take on a loaded machine.
PATIENCE_S = 300.0


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", guide, flags=re.M | re.S)


def shell(commands: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a shell that ends at the first one that fails."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("UTVM_")}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder), **variables}
    return subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env={**kept, **own},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_takes_its_arguments(guide: str) -> None:
    lines = "".join(blocks(GUIDES[guide], "sh")).splitlines()
    rows = [row for row in GUIDES[guide].splitlines() if row.startswith("| `utvm ")]
    # "..." stands for the rest of a command above it.
    lines += [c for row in rows for c in re.findall("`(utvm .*?)`", row) if "... " not in c]
    commands = [shlex.split(line.replace("[FILE...] ", ""), comments=True) for line in lines]
    ours = [argv for argv in commands if argv[:1] == ["utvm"]]
    assert len(ours) > 3
    for argv in ours:
        build_parser(argv[1]).parse_args(argv[1:])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "user"
    made.mkdir()
    shutil.copy(ROOT / "models" / "digits.tflite", made / "model.tflite")
    return made


@pytest.mark.slow
@pytest.mark.emulator
def test_five_minutes_and_the_backup(folder: Path, image_cache: Path) -> None:
    install, client = blocks(GUIDE, "sh")[:2]
    assert shlex.split(install, comments=True) == ["pip", "install", ".[service]", "utvm", "serve"]
    env = {"UTVM_CACHE": str(image_cache)}
    with serving(folder / "data", env=env) as server:
        # Of 40 candidates two show the same.
        lines = client.replace(f"http://127.0.0.1:{DEFAULT_PORT}", server.url).replace(
            "40 --", "2 --"
        )
        done = shell(lines, folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "firmware" / "bundle.zip").stat().st_size > 10_000
    listed = done.stdout.splitlines()[-3:]
    assert [line.split()[3] for line in listed] == ["bundle", "tune", "verify"]
    assert all(" done" in line for line in listed)
    # "Stop the server, copy the folder": the copy serves the same jobs.
    shutil.copytree(folder / "data", folder / "backup")
    with serving(folder / "backup", env=env) as server:
        again = shell("utvm jobs", folder, UTVM_SERVER=server.url)
    assert again.stdout.splitlines()[-3:] == listed


@pytest.fixture
def encrypted(folder: Path) -> Iterator[Server]:
    """A server as the guide starts it beyond this computer, though on this one."""
    make, serve = blocks(GUIDE, "sh")[3].splitlines()
    done = shell(make.replace("192.0.2.7", "127.0.0.1"), folder)
    assert done.returncode == 0, done.stderr
    arguments = shlex.split(serve.replace("192.0.2.7", "127.0.0.1"))[2:]
    with serving(folder / "data", *arguments) as server:
        yield server


@pytest.mark.slow
@pytest.mark.tools
def test_a_user_with_the_authority_and_the_token(folder: Path, encrypted: Server) -> None:
    assert encrypted.url.startswith("https://")
    keys, mine = folder / "keys", folder / "bench-keys"
    mine.mkdir()
    shutil.copy(keys / "authority.pem", mine)
    lines = blocks(GUIDE, "sh")[4].replace(
        f"https://bench.example.org:{DEFAULT_PORT}", encrypted.url
    )
    done = shell(lines, folder)
    assert done.returncode == 1 and "token" in done.stderr
    settings = folder / ".config" / "utvm_deploy"
    settings.mkdir(parents=True)
    shutil.copy(keys / "token", settings / "token")
    done = shell(lines, folder)
    assert done.returncode == 0 and "no jobs" in done.stdout, done.stderr
    # Without the authority nobody is believed.
    done = shell(f"UTVM_SERVER={encrypted.url} utvm jobs", folder)
    assert done.returncode == 1 and "certificate" in done.stderr.lower()


def test_the_port_is_the_one_that_servers_have() -> None:
    found = [
        (path.name, port)
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "cluster.md"  # it has Dask's ports, too
        for port in re.findall(
            r"(?:https?://|utvm://)[\w.]+:(\d+)|localhost:(\d+)/api", path.read_text("utf-8")
        )
    ]
    assert len(found) > 5
    assert [one for one in found if str(DEFAULT_PORT) not in one[1]] == []


def test_the_unit_starts_a_server() -> None:
    (text,) = blocks(GUIDE, "ini")
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    argv = shlex.split(unit["Service"]["ExecStart"])
    args = build_parser(argv[1]).parse_args(argv[1:])
    assert args.verb == "serve" and args.certificates is not None
    assert unit["Service"]["KillSignal"] == "SIGINT"


def test_links_lead_somewhere() -> None:
    for guide in GUIDES.values():
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", guide):
            assert "://" in target or (PAGES / target).exists(), target

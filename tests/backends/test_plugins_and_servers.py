"""Where a plug-in may come from: a command line or Python, and never a server's job."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.base.errors import PluginError, UsageError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.plugin_names import installed_plugins
from utvm_deploy.cli.main import main
from utvm_deploy.service.server.jobs.verbs import VERBS, given_options

DIGITS = data_dir("models") / "digits.tflite"
MODULE = """
from utvm_deploy.backends import Backend, CText, Pattern
backend = Backend("Installed", (Pattern(("ADD",), lambda match: "never"),), CText(""))
print("loaded")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as pip installs it, with an entry point."""
    (tmp_path / "installed_backend.py").write_text(MODULE)
    info = tmp_path / "installed_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[utvm_deploy.backends]\ninstalled = installed_backend:backend\n"
        "broken = installed_backend:no_such_name\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "installed_backend", raising=False)
    return tmp_path


@pytest.mark.tools
def test_installed_plugins_are_listed_and_not_loaded(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {"installed", "broken"} <= set(installed_plugins())
    main(["doctor"])
    said = capsys.readouterr().out
    assert "plug-in installed" in said and "--plugin installed" in said
    assert "installed_backend" not in sys.modules


def test_an_installed_plugin_is_used_by_its_name(package: Path) -> None:
    backend = load_plugin("installed")
    assert (backend.name, backend.family) == ("Installed", "backend-installed")
    with pytest.raises(PluginError, match="plug-in broken: loading it raised AttributeError"):
        load_plugin("broken")
    with pytest.raises(PluginError, match=r"installed are: .*broken, installed"):
        load_plugin("other")


@pytest.mark.parametrize("verb", ["compile", "verify", "profile", "tune", "bundle"])
def test_no_job_takes_a_plugin(verb: str) -> None:
    with pytest.raises(UsageError, match=r"^a server's job takes no plug-in, because .* is code"):
        list(given_options(VERBS[verb], {"plugin": "x.py"}))


def test_submit_refuses_a_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["submit", str(DIGITS), "--job", "compile", "--board", "host"]
    for given in (["--plugin", "x.py"], ["--option", "plugin=x.py", "--plugin=y"]):
        assert main([*argv, *given]) == 2
        assert "a server's job takes no plug-in" in capsys.readouterr().err


def test_a_cluster_runs_no_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["tune", str(DIGITS), "--board", "host", "--trials", "1", "--plugin", "x.py"]
    argv += ["--cluster", "tcp://127.0.0.1:1", "--records", str(tmp_path / "r.jsonl")]
    assert main(argv) == 2
    assert "workers of a cluster run no code of yours; leave out --plugin" in (
        capsys.readouterr().err
    )

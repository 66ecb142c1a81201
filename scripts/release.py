"""Builds the wheel and the sdist, and tries them with each Python that is found: ``make release``.

The packages are in dist/. The wheel is installed by pip into a fresh environment of each Python
from 3.10 on, where the first commands of a new user must succeed. The sdist must give the same
wheel. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 10)
#: Newer ones are looked for by these names, too.
NEWEST = (3, 14)
BOARD = "mps2_an500"
#: What is tried, in this order and in an empty folder.
COMMANDS = (
    "--version",
    "boards",
    "models get digits",
    "inspect digits.tflite",
    f"compile digits.tflite --board {BOARD} -o model.tar",
    f"bundle digits.tflite --board {BOARD} -o firmware",
    "doctor",
)
#: Of one command, pip's download of TVM included.
TIMEOUT_S = 900
_VERSION = "import sys; print(*sys.version_info[:3])"
_FILE = "import utvm_deploy; print(utvm_deploy.__file__)"


class ReleaseError(Exception):
    """What failed, with what the command printed."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every command succeeded with every Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    args = parser.parse_args(argv)
    try:
        wheel, sdist = build(args.out)
        check_same_wheel(wheel, sdist)
        print(f"{wheel.name}: {wheel.stat().st_size} bytes, and the sdist gives the same")
        for version, python in pythons(places(os.environ)).items():
            print(f"Python {version}: {try_wheel(wheel, python)}")
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def build(out: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of this checkout, in ``out``, which is emptied of others."""
    if out.is_dir():
        for old in (*out.glob("utvm_deploy-*.whl"), *out.glob("utvm_deploy-*.tar.gz")):
            old.unlink()
    run([sys.executable, "-m", "hatchling", "build", "-d", str(out.resolve())], ROOT)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def check_same_wheel(wheel: Path, sdist: Path) -> None:
    """Raise ReleaseError unless a build of ``sdist`` gives the files of ``wheel``."""
    with tempfile.TemporaryDirectory(prefix="utvm-") as name:
        folder = Path(name)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (sources,) = folder.iterdir()
        run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", name], sources)
        (other,) = folder.glob("*.whl")
        here, there = checksums(wheel), checksums(other)
    differing = sorted(one for one in {*here, *there} if here.get(one) != there.get(one))
    if differing:
        raise ReleaseError(f"{sdist.name} gives another wheel; it differs in {differing[0]}")


def checksums(wheel: Path) -> dict[str, int]:
    """The name of each file in ``wheel`` -> its CRC."""
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


def places(environment: Mapping[str, str]) -> list[Path]:
    """Where a Python may be: on PATH, and in the folders of pyenv and of GitHub's runners."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    on_path = [shutil.which(name, path=environment.get("PATH", "")) for name in names]
    pyenv = Path(environment.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = sorted(pyenv.glob("3.*/bin/python"))
    if "RUNNER_TOOL_CACHE" in environment:
        found += sorted(Path(environment["RUNNER_TOOL_CACHE"]).glob("Python/3.*/*/bin/python"))
    return [*(Path(one) for one in on_path if one is not None), *found, Path(sys.executable)]


def pythons(candidates: Sequence[Path]) -> dict[str, Path]:
    """Version -> the first of ``candidates`` that runs and has it; one for each minor version."""
    found: dict[tuple[int, int], tuple[str, Path]] = {}
    for python in candidates:
        # A shim of pyenv may exist for a version that is not active.
        done = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            major, minor, patch = (int(part) for part in done.stdout.split())
            if (major, minor) >= OLDEST:
                found.setdefault((major, minor), (f"{major}.{minor}.{patch}", python))
    return dict(found[key] for key in sorted(found))


def try_wheel(wheel: Path, python: Path) -> str:
    """Install ``wheel`` into a fresh environment of ``python``, and run each command there."""
    with tempfile.TemporaryDirectory(prefix="utvm-") as name:
        environment, folder = Path(name, "environment"), Path(name, "folder")
        folder.mkdir()
        run([str(python), "-m", "venv", str(environment)], folder)
        run([str(environment / "bin/pip"), "install", "-q", str(wheel.resolve())], folder)
        file = run([str(environment / "bin/python"), "-c", _FILE], folder)
        if not file.startswith(str(environment)):
            raise ReleaseError(f"not the installed package was tried, but {file.strip()}")
        for command in COMMANDS:
            run([str(environment / "bin/utvm"), *command.split()], folder)
    return f"pip install, and {', '.join(one.split()[0] for one in COMMANDS)}"


def run(command: Sequence[str], folder: Path) -> str:
    """What ``command`` prints. Raises ReleaseError if it fails."""
    # Neither the checkout nor an environment of the caller counts.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command, cwd=folder, env=clean, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"{' '.join(command)}: took more than {TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())

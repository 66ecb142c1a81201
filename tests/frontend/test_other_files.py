"""Files of other frameworks that are given as models: each is named, with the way to a model."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from utvm_deploy.cli.main import main

OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def _archive(*names: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "{}")

    return write


def _bytes(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "saved_model.pb").write_bytes(b"model")


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "state.pt": (
        _archive("state/data.pkl", "state/version"),
        "as torch.save wrote, and no program",
    ),
    "state.pth": (_bytes(OLD_TORCH), "torch.export.save(torch.export.export("),
    "state.tflite": (_archive("archive/data.pkl"), "as torch.save wrote, and no program"),
    "traced.pt": (
        _archive("traced/data.pkl", "traced/code/__torch__/n.py", "traced/constants.pkl"),
        "is TorchScript, as torch.jit.trace or torch.jit.script saved it; export the module",
    ),
    "model.keras": (_archive("metadata.json", "config.json", "model.weights.h5"), "from_keras_mod"),
    "model.h5": (_bytes(b"\x89HDF\r\n\x1a\n" + bytes(32)), "is a file of Keras; convert"),
    "folder": (_folder, "is a SavedModel of TensorFlow; convert"),
    "saved_model.pb": (_bytes(b"model"), "is a SavedModel of TensorFlow; convert"),
    "program.pt": (_archive("program/models/model.json"), "a name that ends in .pt2"),
}
VERBS = (
    ["inspect", "{}"],
    ["compile", "{}", "--board", "host", "-o", "{}.out"],
    ["quantize", "{}", "--data", "calib.npz", "-o", "{}.tflite"],
    ["convert", "{}", "-o", "{}.tflite"],
    ["eval", "{}", "--data", "data.npz"],
    ["verify", "{}", "--board", "host"],
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verb", ["inspect", "quantize", "convert"])
def test_each_is_named(
    name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write, told = FILES[name]
    path = tmp_path / name
    write(path)
    (argv,) = (one for one in VERBS if one[0] == verb)
    assert main([part.format(path) for part in argv]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("argv", VERBS, ids=lambda argv: argv[0])
def test_every_verb_says_it(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.pt"
    FILES["state.pt"][0](path)
    assert main([part.format(path) for part in argv]) == 1
    assert "as torch.save wrote, and no program" in capsys.readouterr().err

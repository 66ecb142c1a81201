"""Archives and manifests made on purpose: right digests, wrong facts. Each gets one sentence."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import utvm_deploy
from utvm_deploy.base.errors import BundleError, ModelError
from utvm_deploy.bundling.manifest import SCHEMA, read_manifest
from utvm_deploy.compiler.compiled.library_format import read_library, write_library

DIGITS = Path(__file__).parents[2] / "models" / "digits.tflite"

VALUES = (
    *(-1, 0, 1, 7, 2**31, 2**32, 2**63, 10**4200, True, None, "", "x", "a\nb", "object", 0.5),
    *(float("nan"), float("inf"), -1e308, [], {}, [[]], [1], "O", "float16", "void", "../x"),
    *("cortex-m99", 'x");execute_process(COMMAND sh', "int8", "\u0000", [None], {"a": 1}, "9a"),
    *([2**40], [-1], [0], [1] * 40, "x" * 1000),
)


@cache
def parts() -> tuple[dict[str, bytes], dict[str, Any]]:
    """The members of a real archive, and its metadata."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.tar"
        write_library(utvm_deploy.compile(DIGITS, "mps2_an386"), path)
        with tarfile.open(path) as archive:
            members = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    return members, json.loads(members.pop("metadata.json"))


def write(path: Path, model: Any) -> None:
    """The archive with these facts, and every digest right."""
    members, metadata = parts()
    section = copy.deepcopy(metadata["utvm"])
    section["model"] = model
    texts = {**members, "metadata.json": json.dumps(model, sort_keys=True).encode()}
    section["sha256"] = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    whole = {**members, "metadata.json": json.dumps({**metadata, "utvm": section}).encode()}
    with tarfile.open(path, "w") as archive:
        for name, data in whole.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value within."""
    if path:
        yield path
    keys: Any = value if isinstance(value, dict) else ()
    if isinstance(value, list):
        keys = range(min(len(value), 2))
    for key in keys:
        yield from places(value[key], (*path, key))


def changed(model: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(model)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


def model_facts() -> Any:
    return parts()[1]["utvm"]["model"]


def refusal(path: Path) -> str | None:
    try:
        read_library(path)
    except ModelError as error:
        text = str(error)
        assert text.isprintable() and len(text) < 700
        return text
    return None


def test_the_archive_is_right_before_it_is_changed(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", model_facts())
    assert read_library(tmp_path / "x.tar").name == "digits"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("arena_bytes",), -1, "arena_bytes is -1"),
        (("arena_bytes",), 1, "outside of 1"),
        (("arena_bytes",), 2**40, "arena_bytes is 1099511627776"),
        (("arena_alignment",), 3, "arena_alignment 3 is not a power of two"),
        (("weights_bytes",), 10**4000, "weights_bytes is 1000"),
        (("core",), "cortex-m99", "core 'cortex-m99' is none of"),
        (("board",), "a\nb", "board is 'a"),
        (("inputs",), [], "the model has no input"),
        (("outputs",), [], "the model has no output"),
        (("inputs", 0, "dtype"), "object", "element type object"),
        (("inputs", 0, "dtype"), "O", "element type O"),
        (("inputs", 0, "shape"), [1, -8, -8, 1], "an extent of the input's shape is -8"),
        (("inputs", 0, "shape"), [2**32], "an extent of the input's shape"),
        (("inputs", 0, "offset"), 2**31, "outside of"),
        (("inputs", 0, "offset"), -4, "outside of"),
        (("inputs", 0, "size_bytes"), 1, "input has 1 bytes"),
        (("inputs", 0, "scale"), float("nan"), "input has the scale nan"),
        (("inputs", 0, "first"), "zz", "non-hexadecimal"),
        (("inputs", 0, "channels"), [0, 1], "input has 2 channels, which its shape has not"),
        (("inputs", 0, "channels"), [-1], "a channel of the input is -1"),
        (("inputs", 0, "name"), "\u001b[2J", "input has the text '\\x1b[2J'"),
        (("layers", 0, "kernel"), "a; b", "kernel of layer 0 is 'a; b'"),
        (("layers", 0, "name"), "\u001b[2J", "layer 0 has the text '\\x1b[2J'"),
        (("layers", 0, "index"), 7, "layer 0 has the index 7"),
        (("layers", 0, "is_external"), True, "a layer calls a library, and none is named"),
        (("layers", 0, "arena", 0, "offset"), -1, "layer 0 has"),
        (("layers", 0, "constants", 0, "size_bytes"), 2**30, "layer 0 has"),
        (("status_offset",), -1, "status_offset has"),
        (("optimize",), "fun", "optimize 'fun' is none of"),
        (("model_digest",), "00", "model_digest is '00'"),
    ],
)
def test_facts_that_cannot_be_are_refused(
    tmp_path: Path, path: tuple[Any, ...], value: Any, says: str
) -> None:
    write(tmp_path / "x.tar", changed(model_facts(), path, value))
    assert says in (refusal(tmp_path / "x.tar") or "it was read")


LIBRARY = {
    "name": "CMSIS-NN",
    "url": "https://example.org",
    "include_dirs": ["/lib"],
    "library": "/lib/x.a",
    "digest": "0" * 64,
    "built_with": "GCC",
    "functions": ["arm_softmax_s8"],
    "zephyr_config": ["CMSIS_NN"],
    "initialize": "",
    "state_bytes": 0,
    "registers": [],
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 'x")\nexecute_process(COMMAND sh)'),
        ("url", "a\nb"),
        ("library", "/x\n/y"),
        ("include_dirs", ["/x\n"]),
        ("digest", "0"),
        ("functions", ["a;b"]),
        ("zephyr_config", ["A=y\nCONFIG_B"]),
    ],
)
def test_a_library_that_cannot_be_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    facts = {**model_facts(), "external": LIBRARY}
    write(tmp_path / "x.tar", facts)
    assert refusal(tmp_path / "x.tar") is None
    write(tmp_path / "x.tar", {**facts, "external": {**LIBRARY, key: value}})
    assert "of the library" in (refusal(tmp_path / "x.tar") or "").replace(
        "the library has", "of the library"
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_changed_facts_are_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    facts = model_facts()
    for _ in range(data.draw(st.integers(1, 2))):
        where = data.draw(st.sampled_from(list(places(facts))))
        facts = changed(facts, where, data.draw(st.sampled_from(VALUES)))
    path = tmp_path_factory.mktemp("archive") / "x.tar"
    write(path, facts)
    refusal(path)


BUFFER = {
    "name": "x",
    "dtype": "int8",
    "shape": [1, 4],
    "scale": 0.5,
    "zero_point": 0,
    "offset": 0,
    "bytes": 4,
}
MANIFEST: dict[str, Any] = {
    "schema": SCHEMA,
    "name": "tiny",
    "board": "b",
    "core": "cortex-m4",
    "arena_bytes": 64,
    "arena_alignment": 16,
    "weights_bytes": 8,
    "inputs": [BUFFER],
    "outputs": [BUFFER],
    "files": {"src/tiny.c": {"bytes": 1, "sha256": "0" * 64}},
}


def manifest_bytes(content: Any) -> bytes:
    digest = hashlib.sha256((json.dumps(content, indent=2) + "\n").encode()).hexdigest()
    return (json.dumps({**content, "digest": digest}, indent=2) + "\n").encode()


def test_a_manifest_with_right_facts_is_read() -> None:
    assert read_manifest(manifest_bytes(MANIFEST))["name"] == "tiny"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("arena_bytes",), -1),
        (("arena_bytes",), "64"),
        (("core",), "cortex-m99"),
        (("core",), ["cortex-m4"]),
        (("inputs",), []),
        (("inputs", 0, "dtype"), "object"),
        (("inputs", 0, "offset"), 64),
        (("outputs", 0, "bytes"), 5),
        (("inputs", 0, "scale"), 10**400),
        (("inputs", 0, "name"), "\u001b[2J"),
        (("name",), "a b"),
        (("files",), None),
        (("files",), {"x": 1}),
        (("files",), {"x": {"bytes": 1}}),
    ],
)
def test_a_manifest_with_facts_that_cannot_be_is_refused(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(BundleError, match=r"manifest\.json holds what no bundle has"):
        read_manifest(manifest_bytes(changed(MANIFEST, path, value)))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_changed_manifest_is_read_or_refused(data: st.DataObject) -> None:
    where = data.draw(st.sampled_from(list(places(MANIFEST))))
    value = data.draw(st.sampled_from([one for one in VALUES if one == one]))
    try:
        read_manifest(manifest_bytes(changed(MANIFEST, where, value)))
    except BundleError as error:
        assert str(error).isprintable() and len(str(error)) < 700

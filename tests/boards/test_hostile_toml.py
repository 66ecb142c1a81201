"""Whatever a board file or a bench file holds, reading it ends in a board or in one sentence."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.toml_table import MAX_FILE_BYTES
from utvm_deploy.boards.board import load_board
from utvm_deploy.boards.desk_file import load_bench

ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / "boards").glob("*.toml")]
BENCH = (
    '[boards.one]\nport = "/dev/ttyACM7"\nprobe_serial = "0670FF"\nbaud = 9600\n'
    'probe = "pyocd"\nserver = "[::1]:3333"\n[[boards.two]]\nport = "a"\n'
)

#: Beyond 4,300 decimal digits Python neither reads nor prints a number.
MANY = 5000
VALUES = (
    *("1" * MANY, "-" + "1_0" * MANY, "0x" + "f" * MANY, "0b" + "1" * 4 * MANY, "0o" + "7" * MANY),
    *("[0x" + "f" * MANY + "]", "{ a = 0x" + "f" * MANY + " }", "-1", "0", "4294967295"),
    *("4294967296", "inf", "-nan", "1e400", "true", '""', '" "', '"\\u0000"', '"a\\nb"', '"\\t"'),
    *('"' + "x" * MANY + '"', '["' + "x" * MANY + '"]', "[]", "{}", "[[]]", "[{}]", "[1]"),
    *('["a", 1]', "1979-05-27", "07:32:00", "9999-12-31T23:59:59+23:59", "[" * MANY, '"host:١"'),
    *("{ a = { a = 1 } }", '"h:' + "1" * MANY + '"', '"{image}"', "'''a\nb'''", '"../x"', '"é"'),
)
#: Beyond Python's limit of recursion; tomllib's time grows with the square of this.
DEEP = 1200
KEYS = ("x" * MANY, '"a\\nb"', '"\\u0000"', '"é"', "1", '""', ".".join("a" * DEEP))


@st.composite
def damaged(draw: st.DrawFn, texts: dict[str, str]) -> tuple[str, bytes]:
    """The name of one of the files, and its text with values, keys or bytes replaced."""
    name, text = draw(st.sampled_from(sorted(texts.items())))
    for _ in range(draw(st.integers(1, 3))):
        assignments = list(re.finditer(r"^([\w.]+) = (.*)$", text, re.MULTILINE))
        if not assignments:
            break
        key, value = (draw(st.sampled_from(assignments)).span(group) for group in (1, 2))
        start, end = value if draw(st.booleans()) or draw(st.booleans()) else key
        new = draw(st.sampled_from(VALUES if (start, end) == value else KEYS))
        text = text[:start] + new + text[end:]
    data = text.encode()
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=8)) + data[at + draw(st.integers(0, 8)) :]
    return name, data


def check_sentence(error: BoardError, path: Path) -> None:
    text = str(error)
    assert text.startswith(f"{path}: ")
    assert text.isprintable() and len(text) < 1000


def read_or_refuse(file: tuple[str, bytes], folder: Path) -> None:
    path = folder / file[0]
    path.write_bytes(file[1])
    try:
        assert load_board(path).name == path.stem
    except BoardError as error:
        check_sentence(error, path)


DAMAGED = damaged({path.name: path.read_text() for path in FILES})


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(file=DAMAGED)
def test_a_damaged_board_file_is_read_or_refused(
    file: tuple[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    read_or_refuse(file, tmp_path_factory.mktemp("boards"))


@pytest.mark.soak
@settings(max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(file=DAMAGED)
def test_many_damaged_board_files_are_read_or_refused(
    file: tuple[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    read_or_refuse(file, tmp_path_factory.mktemp("boards"))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(file=damaged({"bench.toml": BENCH}))
def test_a_damaged_bench_file_is_read_or_refused(
    file: tuple[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("bench") / "bench.toml"
    path.write_bytes(file[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UTVM_BENCH", str(path))
        try:
            load_bench()
        except BoardError as error:
            check_sentence(error, path)


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("key", ["clock_hz", "vendor", "kinds", "executable", "cpu", "zzz"])
def test_an_odd_value_of_any_key_is_read_or_refused(tmp_path: Path, key: str, value: str) -> None:
    text = (ROOT / "boards" / "mps2_an386.toml").read_text()
    changed, count = re.subn(
        rf"^{key} = .*$", lambda _: f"{key} = {value}", text, flags=re.MULTILINE
    )
    path = tmp_path / "mps2_an386.toml"
    path.write_text(changed if count else f"{key} = {value}\n{text}")
    try:
        load_board(path)
    except BoardError as error:
        check_sentence(error, path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = 1\nb = " + "1" * MANY, "the number at line 2 is too long"),
        ("name = 0x" + "f" * MANY, "name: must be a string, not a whole number (a value too large"),
        ('name = "a\\nb"', r"name: 'a\nb' has a control character"),
        ("a = " + "[" * MANY, "it is nested too deeply"),
        ("# " + "x" * MAX_FILE_BYTES, "it has more than 262,144 bytes"),
    ],
    ids=["decimal", "hexadecimal", "control", "nested", "large"],
)
def test_the_sentence_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(BoardError) as caught:
        load_board(path)
    check_sentence(caught.value, path)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "a)", 'a"b', "1a", "é", "a$x", "a;b"])
def test_a_name_that_generated_files_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.toml"
    path.write_text(f"name = '{name}'\n")
    with pytest.raises(BoardError, match="must be letters, digits"):
        load_board(path)


def test_a_pipe_is_no_board_file(tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    os.mkfifo(path)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(BoardError, match="UTVM_BENCH names"):
        patch.setenv("UTVM_BENCH", str(path))
        load_bench()

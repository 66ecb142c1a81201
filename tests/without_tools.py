"""``pytest --without-tools``: the tests that start no compiler, no emulator and no oracle.

Tests are marked ``tools`` if they start one: by hand, or here by the fixtures and helpers they use.
With the option they are left out, and a test that starts a tool nevertheless fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from utvm_deploy.frontend.relax.road import load_tvm

OPTION = "--without-tools"

#: What builds or runs something for a test.
FIXTURES = frozenset(
    {
        "case",
        "decode_tool",
        "device",
        "fake_library",
        "host",
        "host_case",
        "host_program",
        "link",
        "plugin",
        "server",
        "start_device",
        "unit_program",
        "wheel",
        "zephyr",
    }
)
#: Functions whose callers start a tool; a module that imports one holds such tests.
HELPERS = frozenset({"run_reference", "check_model", "compare_on", "build_library"})
#: What a fast test must not be marked as.
MARKS = ("tools", "emulator", "hardware", "slow", "soak")

_TOOL = re.compile(
    r"(.+-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|ld|as)(-[\d.]+)?|arm-none-eabi-.+|qemu-.+"
    r"|cmake|ninja|make|west|dtc"
)


#: How a module marks all of its tests.
_MARKED = re.compile(rf"^pytestmark = (\[[^]]*)?pytest\.mark\.({'|'.join(MARKS)})\b", re.MULTILINE)

#: How a module loads PyTorch or TVM, which takes seconds in each process of the tests.
_LOADS = re.compile(
    r'^((import|from) (torch|tvm)\b|(\w+ = )?pytest\.importorskip\(\s*"(torch|tvm))', re.MULTILINE
)


def is_tool(argv: Sequence[str]) -> bool:
    """Whether a command starts a tool: itself, or as a Python program that may."""
    program, *arguments = argv
    if _TOOL.fullmatch(Path(program).name):
        return True
    programs = ("oracle", "fork_server")
    return any(
        word.startswith("utvm_deploy") or any(one in word for one in programs) for word in arguments
    )


def leaves_out(path: Path) -> bool:
    """Whether a test file loads PyTorch or TVM, or says that all of its tests have one of MARKS.

    Then it is not imported.
    """
    text = path.read_text("utf-8") if path.name.startswith("test_") else ""
    return bool(_MARKED.search(text) or _LOADS.search(text))


class Gate:
    """Refuses tools while a test without tools runs."""

    def __init__(self) -> None:
        self.is_shut = False
        self.refused: list[str] = []

    def watch(self, event: str, arguments: tuple[object, ...]) -> None:
        """An audit hook: also sees what tests start past ``utvm_deploy.base.process``."""
        if not self.is_shut or event != "subprocess.Popen":
            return
        _, argv, _, _ = arguments
        words = [argv] if isinstance(argv, str | bytes | Path) else list(argv)  # type: ignore[call-overload]
        texts = [word.decode() if isinstance(word, bytes) else str(word) for word in words]
        if Path(texts[0]).name == "setpriv":  # by which process.run starts a program
            texts = texts[3:] or texts
        if is_tool(texts):
            self.refused.append(texts[0])
            # No Exception: no `except` of the code under test swallows it.
            pytest.fail(f"a test without the mark `tools` starts {' '.join(texts)[:200]}")


GATE = Gate()


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="only tests that start no tool")


def configure(config: pytest.Config) -> None:
    if config.getoption(OPTION) and not _only_hands_out(config):
        load_tvm()  # which imports PyTorch, where tests are the first to load it
        sys.addaudithook(GATE.watch)


def _only_hands_out(config: pytest.Config) -> bool:
    """Whether this process runs no test itself: its workers wait until it is ready."""
    return bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")


def mark(item: pytest.Item) -> None:
    """Add the mark ``tools`` to a test whose fixtures or helpers start one."""
    module = getattr(item, "module", None)
    uses = FIXTURES.intersection(getattr(item, "fixturenames", ()))
    if uses or any(hasattr(module, name) for name in HELPERS):
        item.add_marker("tools")


def is_fast(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(name) for name in MARKS)


def refusing(config: pytest.Config) -> Iterator[None]:
    """The body of a fixture around each test: refuses tools if the option was given."""
    if not config.getoption(OPTION):
        yield
        return
    GATE.is_shut = True
    GATE.refused.clear()
    try:
        yield
    finally:
        GATE.is_shut = False
    # What a thread started, or a fixture of a whole session.
    assert not GATE.refused, f"a test without the mark `tools` started {GATE.refused}"

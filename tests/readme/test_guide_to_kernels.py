"""docs/contributing/kernels.md: its code runs, and the files that it names exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "contributing" / "kernels.md").read_text(encoding="utf-8")
KERNELS = ROOT / "utvm_deploy" / "kernels"
PATIENCE_S = 60.0
PROGRAM = """
int main(void) {
    const int8_t x[3] = {-128, 5, 7}, w[3] = {-128, 9, -1};
    int32_t sum = 1;
    dot(x, w, 3, &sum);
    if (sum != 16384 + 45 - 7) {
        return 1;
    }
    dot(x, w, 0, &sum);
    return sum != 0;
}
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)


def names_of(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(code, "kernels.md", "exec"), names)
    return names


@pytest.mark.tools
def test_the_routine_compiles_for_arm_and_computes_here(tmp_path: Path) -> None:
    routine, _ = blocks("python")
    source = tmp_path / "dot.c"
    source.write_text(f"#include <stdint.h>\n{names_of(routine)['text']}{PROGRAM}")
    arm = ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-c", "-o", "dot.o"]
    for command in (arm, ["gcc", "-o", "dot"]):
        warnings = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([*command, *warnings, "dot.c"], cwd=tmp_path, check=True, timeout=PATIENCE_S)
    subprocess.run([tmp_path / "dot"], check=True, timeout=PATIENCE_S)


def test_a_layer_gets_the_kernel_that_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    _, example = blocks("python")
    names_of(example)
    (printed,) = blocks("text")
    assert capsys.readouterr().out == printed


def test_the_files_that_it_names_exist() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|h|md|toml))`", GUIDE)
    assert len(named) > 20
    roots = (ROOT, KERNELS, KERNELS / "native")
    assert [one for one in named if not any((root / one).is_file() for root in roots)] == []


def test_the_classes_and_functions_that_it_names_exist() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in KERNELS.rglob("*.py"))
    names = set(re.findall(r"`(_?[A-Za-z]\w+)(?:\([\w, =]*\))?`", GUIDE))
    assert len(names) > 30
    assert [one for one in sorted(names) if not re.search(rf"\b{one}\b", sources)] == []

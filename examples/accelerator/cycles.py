"""The cycles of MX8 and of the CPU for each region of a model.

    python cycles.py digits.tflite mps2_an386

The device's are those that its model has counted in a register, without the driver's work on the
CPU. The CPU's are those of `utvm profile` without the plug-in.
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import utvm_deploy
from utvm_deploy.backends import ConstantArgument, KernelCall, Match
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.kernels.contract.requantization import header

FOLDER = Path(__file__).resolve().parent
SOURCES = ("model.c", "driver.c", "cpu.c", "engine.c", "measure.c")
TIMEOUT_S = 60
HEADER_BYTES = 16  # which utvm writes before a region's bytes


def built(folder: Path) -> Path:
    """The program of measure.c in a folder."""
    (folder / "kernels.h").write_text("#include <stdint.h>\n#include <stddef.h>\n" + header())
    command = ["cc", "-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    sources = [str(FOLDER / name) for name in SOURCES]
    included = ["-include", str(folder / "kernels.h")]
    command += [*included, *sources, "-o", str(folder / "measure")]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return folder / "measure"


def measured(program: Path, blob: bytes, seed: int = 1) -> int:
    """The cycles that the model of the device counts for a region."""
    path = program.with_name("region.bin")
    path.write_bytes(blob)
    command = [str(program), str(path), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    found = re.fullmatch(r"(\d+) cycles\n", done.stdout)
    if done.returncode or found is None:
        raise RuntimeError(f"measure returned {done.returncode}: {done.stdout}")
    return int(found[1])


def regions(model: Path) -> dict[tuple[int, ...], bytes]:
    """The operators in the file of each region that MX8 computes, and the region's bytes."""
    plugin = load_plugin(FOLDER / "plugin.py")
    assert plugin.build is not None
    right, found = plugin.build, dict[tuple[int, ...], bytes]()

    def build(match: Match) -> KernelCall | str:
        made = right(match)
        sources = tuple(source for one in match.operators for source in one.sources)
        for argument in () if isinstance(made, str) else made.arguments:
            if isinstance(argument, ConstantArgument):
                found[sources] = argument.data.tobytes()[HEADER_BYTES:]
        return made

    compiled = utvm_deploy.compile(model, "host", plugin=replace(plugin, build=build))
    return {
        layer.operators: found[layer.operators]
        for layer in compiled.layers
        if layer.engine == "MX8"
    }


def main(model: Path, board: str) -> None:
    """Print the table."""
    theirs = utvm_deploy.profile(model, board).found
    with tempfile.TemporaryDirectory() as folder:
        program = built(Path(folder))
        print(f"| operators | {board}: {theirs.tick_unit} | MX8: cycles |\n|---|---|---|")
        for operators, blob in regions(model).items():
            taken = [one for one in theirs.layers if set(one.layer.operators) <= set(operators)]
            kinds = " + ".join(one.layer.kind for one in taken)
            ticks = sum(one.ticks for one in taken)
            print(f"| {kinds} | {ticks:,} | {measured(program, blob):,} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""Firmware that writes: make it for a board, build it, and give it prompts on an emulated one.

    python examples/writer/firmware.py MODEL.tflite --board mps2_an500 -o FOLDER
        [--prompt "lantern:"] [--temperature 0.8] [--top-k 0] [--seed 0]

FOLDER/tree is a project of `utvm project create` whose main is main.c of this folder, and
FOLDER/build/image.elf is the firmware. For a real board, flash it as you flash your firmware, and
send lines over its UART. With --prompt, the emulator of the board starts, and prints what comes
over its UART. The same model, prompt and seed give `utvm run --prompt` the same text.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL

import numpy as np

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import load_board
from utvm_deploy.device.link.stream import Stream
from utvm_deploy.device.probe.running import start
from utvm_deploy.device.writing import Sampler
from utvm_deploy.frontend.tflite_tables import metadata_of
from utvm_deploy.frontend.vocabulary import VOCABULARY, Vocabulary
from utvm_deploy.project import Image

HERE = Path(__file__).resolve().parent
READY = b"> "
DEADLINE_S, POLL_S = 600.0, 0.2


def vocabulary_header(vocabulary: Vocabulary) -> str:
    """C of the pieces."""
    pieces = ",\n    ".join(f'"{_escaped(piece)}"' for piece in vocabulary.pieces)
    return f"""\
#include "text.h"

#define WRITER_LENGTH {vocabulary.length}u

static const char *const pieces[] = {{
    {pieces},
}};
static const struct vocabulary vocabulary = {{
    pieces,
    {len(vocabulary.pieces)}u,
    {vocabulary.end}u,
    WRITER_LENGTH,
}};
"""


def sampling_header(temperature: float = 0.8, top_k: int = 0, seed: int = 0) -> str:
    """C of how the next token is chosen."""
    Sampler(temperature, top_k, seed)  # which refuses what is no sampling
    return f"""
#define WRITER_TEMPERATURE {float(np.float32(temperature))!r}f
#define WRITER_TOP_K {min(top_k, 0xFFFF)}u
#define WRITER_SEED {seed & 0xFFFFFFFF}u
"""


def pools_header(tree: Path) -> str:
    """C of the addresses that ``writer_run`` takes behind the arena: they begin where regions end.

    The project keeps these ends free, so the linker script's regions are shorter.
    """
    model = (tree / "model/writer.h").read_text()
    (taken,) = re.findall(r"^void writer_run\(uint8_t \*arena(.*)\);", model, re.MULTILINE)
    linked = (tree / "link.ld").read_text()
    ends = {
        name: int(origin, 16) + int(length, 16)
        for name, origin, length in re.findall(
            r"(\w+) +\(\w+\) : ORIGIN = (\w+), LENGTH = (\w+)", linked
        )
    }
    names = re.findall(r"uint8_t \*pool_(\w+)", taken)
    return f"#define WRITER_POOLS {''.join(f', {ends[name]:#x}u' for name in names)}\n"


def _escaped(piece: str) -> str:
    """In octal, where C would read a character in another way."""
    return "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:03o}"
        for byte in piece.encode()
    )


def make(model: Path, board: str, folder: Path, sampling: str) -> Path:
    """The image."""
    text = metadata_of(model.read_bytes(), VOCABULARY)
    if text is None:
        raise UtvmError(f"{model} has no vocabulary; give a model that writes")
    tree, build = folder / "tree", folder / "build"
    utvm = [sys.executable, "-m", "utvm_deploy", "project", "create", model, tree]
    subprocess.run([*utvm, "--board", board, "--name", "writer"], check=True, stdout=DEVNULL)
    for name in ("main.c", "text.c", "text.h"):
        shutil.copy(HERE / name, tree / "template" / name)
    header = vocabulary_header(Vocabulary.of_json(text)) + sampling + pools_header(tree)
    (tree / "template/vocabulary.h").write_text(header, encoding="utf-8")
    lists, main_c = tree / "CMakeLists.txt", "  template/main.c\n"
    lists.write_text(lists.read_text().replace(main_c, f"{main_c}  template/text.c\n"))
    for argv in (["cmake", "-S", tree, "-B", build], ["cmake", "--build", build]):
        subprocess.run(argv, check=True, stdout=DEVNULL)
    image: Path = build / "image.elf"
    return image


def answer(stream: Stream) -> str:
    """What comes before the firmware is ready for the next line."""
    told, deadline = b"", time.monotonic() + DEADLINE_S
    while not told.endswith(READY):
        if time.monotonic() > deadline:
            raise UtvmError(f"no answer within {DEADLINE_S:g} s, but {told!r:.80}")
        told += stream.read(4096, POLL_S)
    return told.removesuffix(READY).decode()


def play(image: Path, board_name: str, prompts: Sequence[str]) -> list[str]:
    """What the firmware answers to each prompt, on an emulated board."""
    board = load_board(board_name)
    with start(board, Image(image, board), with_cycle_model=board.has_cycle_model) as running:
        answer(running.stream)
        answers = []
        for prompt in prompts:
            running.stream.write(f"{prompt}\n".encode(), DEADLINE_S)
            answers.append(answer(running.stream))
    return answers


def main() -> None:
    """Make the firmware, and print what it writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--prompt", action="append", default=[])
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    image = make(
        options.model,
        options.board,
        options.output,
        sampling_header(options.temperature, options.top_k, options.seed),
    )
    for text in play(image, options.board, options.prompt) if options.prompt else ():
        print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except UtvmError as error:
        sys.exit(f"error: {error}")

"""A double of ``idf.py``: a project's sources and a POSIX double of ESP-IDF become a process.

It takes what esp_idf_build.py gives it, and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
#: What ESP-IDF's linker scripts define, by what those of GNU ld do.
SYMBOLS = {
    "_text_start": "__executable_start",
    "_text_end": "etext",
    "_rodata_start": "etext",
    "_rodata_end": "edata",
}


def main() -> None:
    """Build, and write the list of files to flash."""
    first, project, second, build, define, value, verb = sys.argv[1:]
    assert (first, second, define, verb) == ("-C", "-B", "-D", "build"), sys.argv
    assert value == f"SDKCONFIG={build}/sdkconfig", value
    folder, out = Path(project), Path(build)
    defaults = (folder / "sdkconfig.defaults").read_text()
    assert f'CONFIG_IDF_TARGET="{os.environ["IDF_TARGET"]}"' in defaults
    main_file = (folder / "main" / "CMakeLists.txt").read_text()
    model = (folder / "model" / "sources.cmake").read_text()
    sources = re.findall(r"\.\./[\w/]+\.[cS]\b", main_file + model)
    keep = [word for name in re.findall(r'"-u (\w+)"', main_file) for word in ("-u", name)]
    out.mkdir(parents=True, exist_ok=True)
    command = [
        *("cc", "-no-pie", "-g", "-O1", "-std=gnu17", "-ffp-contract=off"),
        *("-Wall", "-Wextra", "-Werror", f"-I{HERE / 'include'}"),
        *(f"-I{folder / name}" for name in ("runtime", "template", "model")),
        *(str(folder / "main" / name) for name in sources),
        str(HERE / "double.c"),
        os.environ["ESP_IDF_DOUBLE_LIBC"],
        *keep,
        *("-u", "utvm_libc_memcpy", "-lm"),
        *re.findall(r"-Wl,--wrap=\w+", main_file),
        *(f"-Wl,--defsym={name}={value}" for name, value in SYMBOLS.items()),
        *("-o", str(out / "image.elf")),
    ]
    subprocess.run(command, check=True, timeout=120)
    (out / "image.bin").write_bytes(b"\xe9")
    found = {
        "write_flash_args": ["--flash_mode", "dio", "--flash_size", "2MB", "--flash_freq", "80m"],
        "flash_files": {"0x10000": "image.bin"},
        "app": {"offset": "0x10000", "file": "image.bin", "encrypted": "false"},
        "extra_esptool_args": {"after": "hard_reset", "chip": os.environ["IDF_TARGET"]},
    }
    (out / "flasher_args.json").write_text(json.dumps(found))


main()

"""A C compiler of zig's parts: ``zig cc`` compiles, and ``zig wasm-ld`` links.

``zig cc`` refuses most options of that linker. The cache has a script that runs this file with
JSON of the settings, and then the arguments of the compiler. It is a separate program, so that a
compilation loads nothing of the package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

#: Options of links alone, besides those that begin with -Wl, and -l.
_OF_LINKS = ("-r", "-nostdlib", "-nostartfiles", "-static")


def main(settings: str, arguments: Sequence[str]) -> int:
    """Run one command of a compiler driver; its exit status.

    ``settings`` has "zig", the words that start it, and "libraries", what every link takes.
    """
    zig, libraries = json.loads(settings).values()
    if {"-c", "-E", "--version"} & set(arguments):
        return subprocess.call([*zig, "cc", *arguments])
    words, output = list(arguments), "a.out"
    if "-o" in words:
        at = words.index("-o")
        output = words[at + 1]
        del words[at : at + 2]
    linked = [part for word in words if word.startswith("-Wl,") for part in word.split(",")[1:]]
    inputs = [word for word in words if word.endswith((".o", ".obj", ".a")) and word[0] != "-"]
    sources = [word for word in words if word.endswith((".c", ".S", ".s")) and word[0] != "-"]
    flags = [
        word
        for word in words
        if word not in (*_OF_LINKS, *inputs, *sources) and not word.startswith(("-Wl,", "-l"))
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number, source in enumerate(sources):
            made = os.path.join(folder, f"{number}.o")
            status = subprocess.call([*zig, "cc", *flags, "-c", source, "-o", made])
            if status:
                return status
            inputs.append(made)
        rest = ["-r"] if "-r" in words else libraries
        return subprocess.call([*zig, "wasm-ld", *linked, *inputs, *rest, "-o", output])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

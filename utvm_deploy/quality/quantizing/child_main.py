"""What every quantizing child does: limit its memory, report progress, leave a refusal.

The libraries print, raise all kinds of exceptions, and may end their process on odd files.
"""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.process import limit_memory
from utvm_deploy.base.readable import utf8
from utvm_deploy.quality.quantizing.child_files import JOB, REFUSAL

#: Given the folder, the job, and what reports progress.
Step: TypeAlias = Callable[[Path, Mapping[str, Any], Callable[[int, int], None]], None]

#: What a child may map; LiteRT itself takes less than 1 GiB.
MEMORY_BYTES = 8 * 1024**3


def run_step(steps: Mapping[str, Step], step: str, name: str) -> int:
    """Do one step in the folder of that name; the exit status."""
    folder = Path(name)
    # The libraries' own temporary files go with the folder, however this process ends.
    tempfile.tempdir = name
    # Only progress goes to standard output: the libraries print there, too.
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(done: int, total: int) -> None:
        print(done, total, file=stdout, flush=True)

    limit_memory(MEMORY_BYTES)
    try:
        steps[step](folder, json.loads((folder / JOB).read_text("utf-8")), tell)
        return 0
    except ModelError as error:
        text = str(error)
    except OSError as error:
        text = f"the system refused: {error.strerror or error}; make room for temporary files"
    except MemoryError:
        text = f"its quantization takes more than {MEMORY_BYTES >> 30} GiB of memory"
    except Exception as error:  # the libraries raise all kinds
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"its quantization failed with {said} ({Path(where.filename).name}:{where.lineno})"
    (folder / REFUSAL).write_bytes(utf8(text))
    return 1

"""A stand-in for CMSIS-NN: our own C with its interface, as a static library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from utvm_deploy.backends.cmsis_nn import CmsisNn

FAKE = Path(__file__).parent / "fake"
COMPILE_TIMEOUT_S = 60

#: For tests of the generator alone: nothing lies there.
NOWHERE = CmsisNn(("/nowhere/Include",), "/nowhere/libcmsis-nn.a", "0" * 64, "a test")


def build_library(
    folder: Path, *flags: str, compiler: str = "cc", source: Path | None = None
) -> Path:
    """``folder`` as a user's CMSIS-NN: Include/ and a static library of one object."""
    include = folder / "Include"
    include.mkdir(parents=True, exist_ok=True)
    shutil.copy(FAKE / "arm_nnfunctions.h", include)
    command = [compiler, "-O1", *flags, f"-I{include}", "-c", str(source or FAKE / "fake.c")]
    subprocess.run([*command, "-o", str(folder / "fake.o")], check=True, timeout=COMPILE_TIMEOUT_S)
    archiver = compiler.removesuffix("gcc") + "ar" if compiler.endswith("gcc") else "ar"
    subprocess.run(
        [archiver, "rcs", str(folder / "libcmsis-nn.a"), str(folder / "fake.o")],
        check=True,
        timeout=COMPILE_TIMEOUT_S,
    )
    (folder / "fake.o").unlink()
    return folder

"""The user's copy of CMSIS-NN, as facts; ``project.find_cmsis_nn`` finds and checks it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from utvm_deploy.compiler.model import ExternalLibrary

NAME = "CMSIS-NN"
URL = "https://github.com/ARM-software/CMSIS-NN"


@dataclass(frozen=True)
class CmsisNn:
    """Headers and a static library that was built for one core."""

    include_dirs: tuple[str, ...]
    library: str
    digest: str  # SHA-256 over headers and library
    built_with: str  # compiler, version and instruction set, for reports
    # What the build chose among its variants, which need different scratch memory.
    has_mve: bool = False
    is_armclang: bool = False

    def called(self, functions: Iterable[str | None]) -> ExternalLibrary | None:
        """The dependency of sources that call these functions; None if they call none."""
        names = tuple(sorted({name for name in functions if name is not None}))
        if not names:
            return None
        return ExternalLibrary(
            NAME, URL, self.include_dirs, self.library, self.digest, self.built_with, names
        )

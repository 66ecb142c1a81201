"""The file with the token that a server asks for."""

from __future__ import annotations

from pathlib import Path

from utvm_deploy.base.errors import UtvmError

#: Shorter ones can be guessed.
_SHORTEST, _LONGEST = 16, 4096


def read_token(path: Path) -> str:
    """The token in the file. Raises UtvmError if it is none, or if others may read it."""
    try:
        if path.stat().st_mode & 0o077:
            raise UtvmError(f"other users may read {path}; run: chmod 600 {path}")
        with path.open("rb") as file:
            token = file.read(_LONGEST + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise UtvmError(f"cannot read the token in {path}: {error.strerror}") from error
    is_good = all("!" <= sign <= "~" for sign in token)
    if not is_good or not _SHORTEST <= len(token) <= _LONGEST:
        raise UtvmError(
            f"{path} holds no token; write one line of {_SHORTEST} or more letters and digits, "
            "such as `openssl rand -hex 32` gives"
        )
    return token

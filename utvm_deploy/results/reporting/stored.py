"""Reading a report again: the JSON file, or the page that holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import check_regular
from utvm_deploy.graph.number_formats.shipped import SHIPPED
from utvm_deploy.results.pages.embedded_json import embedded_json

SCHEMA = "utvm.report/2"
#: The options that a report may set, with the types of their values. None of them names code, a
#: program, a server or a file to write: a report may come from somebody else.
OPTIONS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("kernels", "scratch", "optimize", "float_math"), (str,)),
    **dict.fromkeys(("signature", "image_input", "name", "number_format", "timing"), (str,)),
    **dict.fromkeys(("ram_budget", "flash_budget", "cycle_budget"), (int,)),
    "flash_rate": (int, float),
    **dict.fromkeys(("allow_float", "input_rows"), (bool,)),
    **dict.fromkeys(("pools", "inputs", "states", "stream"), (dict,)),
}
#: Keys of the object, behind which are objects.
_PARTS = (*("model", "board", "options", "evaluated", "files", "environment", "profile", "memory"),)


def read_report(path: Path) -> dict[str, Any]:
    """The object of a report. Raises UtvmError for a file that holds none, or a damaged one."""
    try:
        check_regular(path)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UtvmError(f"cannot read the report {path}: {reason}; {_HINT}") from error
    try:
        result = json.loads(embedded_json(text))
    except (ValueError, RecursionError) as error:
        raise UtvmError(f"{path} holds no report; {_HINT}") from error
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        schema = result.get("schema") if isinstance(result, dict) else None
        told = f"its schema is {schema!r}" if schema else "it is other JSON"
        raise UtvmError(f"{path} holds no report ({told}); {_HINT}")
    _check(path, result)
    return result


_HINT = "give what `utvm report MODEL --board B` wrote, the page or its --json"


def _check(path: Path, result: Mapping[str, Any]) -> None:
    for key in _PARTS:
        if not isinstance(result.get(key), dict):
            raise _damaged(path, key)
    if not isinstance(result.get("verify", ""), dict | None):
        raise _damaged(path, "verify")
    if not isinstance(result.get("ethos_u"), str | None):
        raise _damaged(path, "ethos_u")
    for part, key in (("model", "file"), ("model", "sha256"), ("board", "given")):
        if not isinstance(result[part].get(key), str):
            raise _damaged(path, f"{part}.{key}")
    for name, value in result["options"].items():
        if name not in OPTIONS:
            raise UtvmError(f"{path} is damaged: a report cannot set the option {name!r}; {_HINT}")
        if value is not None and type(value) not in OPTIONS[name]:
            raise _damaged(path, f"options.{name}")
    pools, shapes = result["options"].get("pools"), result["options"].get("inputs")
    if not all(type(limit) is int for limit in (pools or {}).values()):
        raise _damaged(path, "options.pools")
    if not all(_is_shape(shape) for shape in (shapes or {}).values()):
        raise _damaged(path, "options.inputs")
    for what, one in result["files"].items():
        if not isinstance(one, dict) or not isinstance(one.get("file"), str):
            raise _damaged(path, f"files.{what}")
    check_named(result["options"].get("number_format"))
    if not isinstance(result["evaluated"].get("samples"), int | None):
        raise _damaged(path, "evaluated.samples")


def check_named(number_format: object) -> None:
    """UtvmError for a number format that a report cannot name."""
    if number_format is not None and number_format not in SHIPPED:
        raise UtvmError(
            f"a report names no code, such as the number format {number_format}; choose "
            f"{' or '.join(SHIPPED)}"
        )


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(type(extent) is int for extent in value)


def _damaged(path: Path, key: str) -> UtvmError:
    return UtvmError(f"{path} is damaged: {key} is missing or of another kind; {_HINT}")

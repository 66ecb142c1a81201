"""Number formats: each function of a format is there as C and as NumPy.

A format without operations stores: weights are kept in it, and a kernel decodes each to float32
when it reads it. A format with operations computes, too: activations are kept in it. What it lacks
is computed on float32 and encoded.

A format is code: the rule for plug-ins in SECURITY.md holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from utvm_deploy.base.errors import PluginError
from utvm_deploy.base.python_file import is_file_name, module_of
from utvm_deploy.graph.number_formats.formats import (
    OPERATIONS,
    Function,
    NumberFormat,
    check_format,
)
from utvm_deploy.graph.number_formats.shipped import SHIPPED

__all__ = [
    "OPERATIONS",
    "Function",
    "NumberFormat",
    "check_format",
    "format_of",
    "known_format",
    "register",
]

_registered: dict[str, NumberFormat] = {}


def register(
    name: str,
    bits: int,
    encode: Function,
    decode: Function,
    operations: Mapping[str, Function] | None = None,
    *,
    helpers: str = "",
) -> NumberFormat:
    """Give a number format a name, by which ``compile`` and ``--format`` know it.

    - ``name`` has small letters, digits and _; it begins the names of C functions.
    - ``bits`` are 4 to 16; a number is kept in one byte, or in two.
    - ``encode`` makes a number of a float32, and ``decode`` a float32 of a number, each a
      ``Function`` of C and NumPy, with the operand ``x``.
    - ``operations`` maps names of ``OPERATIONS`` to functions of the operands ``a``, ``b`` and, of
      fma, ``c``. Without any, the format is for storage: kernels compute on float32.
    - ``helpers`` is C text with further functions, whose names begin with that of the format.

    A format of the same name is replaced, but not one of the package. Returns the format. Raises
    PluginError for one that gives numbers beyond its bits, or whose numbers do not stay the same
    when they are decoded and encoded. C and NumPy are compared when a model is compiled.
    """
    made = NumberFormat(name, bits, encode, decode, operations or {}, helpers)
    check_format(made)
    if name in SHIPPED:
        raise made.wrong("this name belongs to a format of utvm_deploy; choose another one")
    _registered[name] = made
    return made


def known_format(name: str) -> NumberFormat:
    """The format of a name; PluginError if there is none."""
    known = {**SHIPPED, **_registered}
    if name not in known:
        raise PluginError(
            f"there is no number format {name!r}; there are {', '.join(known)}, and what a Python "
            "file registers: --format FILE.py"
        )
    return known[name]


def format_of(given: str | Path | NumberFormat) -> NumberFormat:
    """A format by its name, or by the Python file that registers it, which is run.

    ``FILE.py:NAME`` is one of several in a file. Raises PluginError.
    """
    if isinstance(given, NumberFormat):
        return given
    file, colon, name = str(given).rpartition(":")
    if not colon or not file.endswith(".py"):
        file, name = str(given), ""
    if not is_file_name(file):
        return known_format(file)
    where = f"number format {file}"
    if not Path(file).is_file():
        raise PluginError(f"{where}: there is no such file; give a Python file that registers one")
    before = dict(_registered)
    module_of(Path(file), where)
    new = [key for key, one in _registered.items() if before.get(key) is not one]
    if name in new or (not name and len(new) == 1):
        return _registered[name or new[0]]
    if not new:
        raise PluginError(f"{where} registers no format; call utvm_deploy.number_formats.register")
    told = ", ".join(new)
    raise PluginError(f"{where} registers {told}; name one of them: --format {file}:{new[0]}")

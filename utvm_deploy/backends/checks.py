"""Checks what a plug-in says: each wrong value becomes one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from utvm_deploy.backends.interface import (
    CUSTOM_PREFIX,
    MOST_BYTES,
    Backend,
    CText,
    Pattern,
    StaticLibrary,
)
from utvm_deploy.backends.patterns import Expression, Op, parts_of
from utvm_deploy.backends.relax_patterns import is_of_tvm
from utvm_deploy.base.errors import PluginError
from utvm_deploy.base.readable import is_c_text
from utvm_deploy.frontend.tflite_tables import OPERATOR_NAMES
from utvm_deploy.kernels.contract.call import LibraryKernel
from utvm_deploy.kernels.contract.external_library import MOST_WINDOWS, WINDOW_BYTES, is_window

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _.+-]{0,100}", re.ASCII)
_KIND = re.compile(r"(CUSTOM [!-~]{1,100})|[A-Z][A-Za-z0-9_]{0,60}", re.ASCII)
C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}", re.ASCII)

# A function that C text defines.
_DEFINED = re.compile(
    r"^[A-Za-z_][\w \t*]*[ \t*]([A-Za-z_]\w*)\s*\([^;{}]*\)\s*\{", re.ASCII | re.MULTILINE
)

#: The names without "_" of TFLite's operators, and with it.
_BY_LETTERS = {one.replace("_", ""): one for one in OPERATOR_NAMES.values()}

_Member = TypeVar("_Member")


def check_backend(backend: object, where: str) -> Backend:
    """The same object; PluginError if it, or a part of it, is of a wrong type or has a wrong value.

    ``where`` is the plug-in, for messages.
    """
    if not isinstance(backend, Backend):
        raise PluginError(
            f"{where}: its name 'backend' is {_a(backend)}, not a utvm_deploy.backends.Backend; "
            "set backend = Backend(...)"
        )
    _text(where, "Backend.name", backend.name, _NAME)
    if not isinstance(backend.code, CText | StaticLibrary):
        raise _wrong(where, "Backend.code", backend.code, "CText or StaticLibrary")
    if isinstance(backend.code, CText) and not isinstance(backend.code.text, str):
        raise _wrong(where, "CText.text", backend.code.text, "a text")
    if isinstance(backend.code, CText) and not is_c_text(backend.code.text):
        raise PluginError(f"{where}: CText.text has a character that C cannot have; remove it")
    _all(where, "Backend.cores", backend.cores, str)
    if backend.initialize != "":
        _text(where, "Backend.initialize", backend.initialize, C_NAME)
    if not isinstance(backend.state_bytes, int) or not 0 <= backend.state_bytes <= MOST_BYTES:
        raise PluginError(
            f"{where}: Backend.state_bytes is {backend.state_bytes!r}; give 0 or more"
        )
    if backend.state_bytes and not backend.initialize:
        raise PluginError(
            f"{where}: Backend.state_bytes is {backend.state_bytes}, and nothing initializes them; "
            "name a C function as Backend.initialize"
        )
    for window in _all(where, "Backend.registers", backend.registers, tuple):
        if not is_window(window):
            raise PluginError(
                f"{where}: Backend.registers has {window!r}; give (address, bytes), both integers "
                f"and multiples of {WINDOW_BYTES}, in 32 bits"
            )
    if len(backend.registers) > MOST_WINDOWS:
        raise PluginError(
            f"{where}: Backend.registers has {len(backend.registers)} ranges, and MPUs have room "
            f"for {MOST_WINDOWS}; join some"
        )
    if not isinstance(backend.url, str) or not backend.url.isprintable():
        raise _wrong(where, "Backend.url", backend.url, "a line of text")
    for name in ("covers", "build", "estimate", "of_file", "zephyr_options"):
        function = getattr(backend, name)
        if function is not None and not callable(function):
            raise _wrong(where, f"Backend.{name}", function, "a function")
    for name in ("is_bus_master", "is_apart"):
        if not isinstance(value := getattr(backend, name), bool):
            raise _wrong(where, f"Backend.{name}", value, "True or False")
    if not isinstance(backend.stand_in, Backend | None):
        raise _wrong(where, "Backend.stand_in", backend.stand_in, "a Backend")
    for pattern in _all(where, "Backend.patterns", backend.patterns, Pattern):
        _check_pattern(where, pattern, has_build=backend.build is not None)
    if not backend.patterns and backend.covers is None:
        raise PluginError(
            f"{where}: Backend.patterns is empty; give at least one Pattern, or Backend.covers"
        )
    if backend.covers is not None and backend.build is None:
        raise PluginError(f"{where}: Backend.covers needs Backend.build; give a function")
    return backend


def check_together(backends: Sequence[Backend]) -> None:
    """PluginError unless the backends may be in one model."""
    for number, one in enumerate(backends):
        for other in backends[:number]:
            both = f"{_told(one)} and {_told(other)}"
            # CMake's variables have the names, too.
            if _plain(one.name) == _plain(other.name):
                raise PluginError(f"{both} both bring a backend {one.name!r}; rename one")
            shared = sorted(_functions_of(one) & _functions_of(other))
            if shared and (isinstance(one.code, CText) or one.code != other.code):
                raise PluginError(f"{both} both define {shared[0]} in C; rename one")
    ranges = sum(len(one.registers) for one in backends)
    if ranges > MOST_WINDOWS:
        names_of = ", ".join(one.name for one in backends if one.registers)
        raise PluginError(
            f"the backends {names_of} have {ranges} ranges of registers, and MPUs have room for "
            f"{MOST_WINDOWS}; leave one of them out"
        )


def check_headers(kernels: Iterable[LibraryKernel], backends: Sequence[Backend]) -> None:
    """PluginError if two libraries have headers of one name: a compiler finds the first alone."""
    folders = {
        one.name: one.code.include_dirs for one in backends if isinstance(one.code, StaticLibrary)
    }
    known: dict[str, tuple[str, Path]] = {}
    for kernel in kernels:
        for folder in folders.get(kernel.backend, ()) if kernel.include else ():
            if (folder / kernel.include).is_file():
                first, place = known.setdefault(kernel.include, (kernel.backend, folder))
                if place != folder:
                    raise PluginError(
                        f"the backends {first} and {kernel.backend} have different headers "
                        f"{kernel.include}; rename one"
                    )
                break


def _told(backend: Backend) -> str:
    return backend.origin or backend.name


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _functions_of(backend: Backend) -> frozenset[str]:
    """The functions that a backend defines: those of its C text, or all names of its library."""
    if isinstance(backend.code, CText):
        return frozenset(_DEFINED.findall(backend.code.text))
    return backend.functions or frozenset()


def _check_pattern(where: str, pattern: Pattern, *, has_build: bool) -> None:
    given = pattern.operators
    if isinstance(given, Expression) or is_of_tvm(given):
        given = (given,)
    try:
        if isinstance(given, tuple) and any(map(is_of_tvm, given)):
            given = pattern.roots
    except PluginError as error:
        raise PluginError(f"{where}: {error}") from error
    of_text = isinstance(given, tuple) and any(isinstance(one, str) for one in given)
    expected: type = str if of_text else Expression
    if not _all(where, "Pattern.operators", given, expected):
        raise PluginError(f"{where}: Pattern.operators is empty; name at least one operator")
    found = [one for root in pattern.roots for one in parts_of(root) if isinstance(one, Op)]
    for kind in (kind for one in found for kind in one.kinds):
        _text(where, "Pattern.operators", kind, _KIND)
        if (near := _BY_LETTERS.get(kind.replace("_", ""), kind)) != kind:
            raise PluginError(f"{where}: Pattern.operators has {kind!r}; did you mean {near!r}?")
    if not all(one.kinds for one in found) or not found:
        raise PluginError(f"{where}: a pattern has an op() without kinds, or none; name operators")
    shown, kinds = pattern.label, given if of_text else ()
    if not callable(pattern.build) and (pattern.build is not None or not has_build):
        raise _wrong(where, f"Pattern.build of {shown}", pattern.build, "a function")
    if any(str(kind).startswith(CUSTOM_PREFIX) for kind in kinds):
        if len(kinds) > 1:
            raise PluginError(
                f"{where}: the pattern {shown} has a custom operator among others; give the custom "
                "operator a separate pattern"
            )
        for name in ("reference", "infer"):
            if not callable(getattr(pattern, name)):
                raise PluginError(
                    f"{where}: the pattern {shown} has no {name}; the reference interpreter does "
                    "not know a custom operator, so give a function"
                )


def _all(where: str, what: str, value: object, kind: type[_Member]) -> tuple[_Member, ...]:
    if not isinstance(value, tuple):
        raise _wrong(where, what, value, "a tuple")
    for one in value:
        if not isinstance(one, kind):
            raise _wrong(where, f"a member of {what}", one, f"a {kind.__name__}")
    return value


def _text(where: str, what: str, value: object, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise PluginError(
            f"{where}: {what} is {value!r}, which does not match {pattern.pattern}; correct it"
        )


def _wrong(where: str, what: str, value: object, expected: str) -> PluginError:
    return PluginError(f"{where}: {what} is {_a(value)}, not {expected}; correct it")


def _a(value: object) -> str:
    return f"an object of type {type(value).__name__}"

"""Checks what a plug-in says: each wrong value becomes one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from utvm_deploy.kernels.contract.external_library import MOST_WINDOWS, WINDOW_BYTES, is_window

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _.+-]{0,100}", re.ASCII)
_KIND = re.compile(r"(CUSTOM [!-~]{1,100})|[A-Z][A-Za-z0-9_]{0,60}", re.ASCII)
C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}", re.ASCII)

# A function that C text defines.
_DEFINED = re.compile(
    r"^[A-Za-z_][\w \t*]*[ \t*]([A-Za-z_]\w*)\s*\([^;{}]*\)\s*\{", re.ASCII | re.MULTILINE
)

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
    for name in ("covers", "build", "estimate"):
        function = getattr(backend, name)
        if function is not None and not callable(function):
            raise _wrong(where, f"Backend.{name}", function, "a function")
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
            if one.family == other.family:
                raise PluginError(
                    f"{one.origin} and {other.origin} both bring a backend {one.name!r}; rename one"
                )
            if both := sorted(_functions_of(one) & _functions_of(other)):
                raise PluginError(
                    f"{one.origin} and {other.origin} both define {both[0]} in C; rename one"
                )
    ranges = sum(len(one.registers) for one in backends)
    if ranges > MOST_WINDOWS:
        names_of = ", ".join(one.name for one in backends if one.registers)
        raise PluginError(
            f"the backends {names_of} have {ranges} ranges of registers, and MPUs have room for "
            f"{MOST_WINDOWS}; leave one of them out"
        )


def _functions_of(backend: Backend) -> set[str]:
    """The functions that the C text of a backend defines."""
    return {*_DEFINED.findall(backend.code.text)} if isinstance(backend.code, CText) else set()


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

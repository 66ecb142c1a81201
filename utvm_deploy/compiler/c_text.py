"""Small pieces of C text: names, numbers, comments."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from utvm_deploy.base.errors import CompileError
from utvm_deploy.graph.element_type import ELEMENT_TYPES

#: Nobody reads lines with longer names. C99 compilers must distinguish 31 characters; all ours
#: distinguish far more.
MAX_PREFIX_LENGTH = 48
#: Converters join the names of all operators that they fused.
MAX_COMMENT_LENGTH = 60

#: A macro in front of each function of the kernels, and of the weights. It is empty, unless the
#: user of the C defines it as an attribute that names a section.
KERNEL_SECTION, WEIGHTS_SECTION = "UTVM_KERNEL_SECTION", "UTVM_WEIGHTS_SECTION"
_STATIC_FUNCTION = re.compile(
    r"^(?=(?:UTVM_\w+ |__attribute__\(\(\w+\)\) )*static [\w\s*]*(?<!__attribute__)\()",
    re.MULTILINE,
)

# A prefix must not be a word of C or C++, nor the beginning of our runtime's symbols.
# fmt: off
_RESERVED = frozenset((
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "union", "unsigned", "void", "volatile", "while", "bool", "true", "false", "class",
    "delete", "friend", "mutable", "namespace", "new", "operator", "private", "protected",
    "public", "template", "this", "throw", "try", "catch", "typename", "using", "virtual",
    "and", "or", "not", "xor", "main", "memcpy", "memset", "utvm",
))
# fmt: on


def check_prefix(name: str) -> str:
    """``name`` itself, if it can begin every C symbol of a model; else CompileError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise CompileError(
            f"{name!r} cannot prefix C symbols: use letters, digits and underscores, beginning "
            "with a letter (--name)"
        )
    if name in _RESERVED or name.startswith("utvm_"):
        raise CompileError(f"{name!r} is reserved; choose another prefix (--name)")
    if len(name) > MAX_PREFIX_LENGTH:
        raise CompileError(
            f"the prefix {name!r} is longer than {MAX_PREFIX_LENGTH} characters; "
            "choose a shorter one (--name)"
        )
    return name


def prefix_from_path(path: Path | str) -> str:
    """A valid prefix made from a model file's name."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", Path(path).stem).strip("_") or "model"
    if not name[0].isalpha() or name in _RESERVED or name.startswith("utvm"):
        name = f"model_{name}"
    return check_prefix(name[:MAX_PREFIX_LENGTH].rstrip("_"))


def c_type(dtype: str) -> str:
    """The C name of an element type, or of its storage unit."""
    one = ELEMENT_TYPES.get(dtype)
    if one is None or not one.c_type:
        known = ", ".join(name for name, one in ELEMENT_TYPES.items() if one.c_type)
        raise CompileError(
            f"element type {dtype} has no place in the generated C; use one of {known}"
        )
    return one.c_type


def placed(code: str) -> str:
    """The C of kernels, whose static functions have the macro for their section."""
    return _STATIC_FUNCTION.sub(f"{KERNEL_SECTION} ", code)


def integer(value: int) -> str:
    """An int32 constant; the smallest one has no literal in C."""
    return "INT32_MIN" if value == -(2**31) else str(value)


def float_literal(value: float) -> str:
    """The shortest constant expression that is the same float.

    C has no literals for infinity and NaN, so they are divisions by zero.
    """
    single = np.float32(value)
    if np.isnan(single):
        return "(0.0f / 0.0f)"
    if np.isinf(single):
        return "(-1.0f / 0.0f)" if single < 0 else "(1.0f / 0.0f)"
    text = str(single)
    return (text if any(c in text for c in ".e") else text + ".0") + "f"


def comment(text: str) -> str:
    """``text`` from a model file, short and harmless inside a comment."""
    if len(text) > MAX_COMMENT_LENGTH:
        text = text[: MAX_COMMENT_LENGTH - 3] + "..."
    return re.sub(r"[^A-Za-z0-9_.:;,+()\[\] -]", "_", text)

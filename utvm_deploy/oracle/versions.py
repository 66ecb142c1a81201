"""A .tflite file with versions of its operators that LiteRT's reference kernels have.

LiteRT looks a kernel up by the operator's version, and the reference kernels lack some new ones. A
kernel does not know the version: it looks at the types. So the reference kernel of an older version
computes the same, or refuses the types. A version that the default kernels lack, too, is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from utvm_deploy.oracle.truths import DEFAULT_KERNELS, REFERENCE_KERNELS

#: How LiteRT names a version that it lacks.
LACKED = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")
#: What stands for operators that have no version at all, until they are cut out.
_PLACEHOLDER = "ADD"


def with_known_versions(
    data: bytes, build: Callable[[bytes, str], object]
) -> tuple[bytes, frozenset[str]]:
    """The file for the reference kernels, and the operators that they lack in all versions.

    ``build`` gives a file to the kernels of a resolver. Other errors of it are raised.
    """
    lacking: set[str] = set()
    while (lacked := _lacked(data, build)) is not None:
        kind, version = lacked
        if not lacking:
            build(data, DEFAULT_KERNELS)
        if version == 1:
            lacking.add(kind)
        data = _changed(data, kind, version)
    return data, frozenset(lacking)


def _lacked(data: bytes, build: Callable[[bytes, str], object]) -> tuple[str, int] | None:
    try:
        build(data, REFERENCE_KERNELS)
    except ValueError as error:
        found = LACKED.search(str(error))
        if found is None:
            raise
        return found[1], int(found[2])
    return None


def _changed(data: bytes, kind: str, version: int) -> bytes:
    """The file with the next older version of an operator, or with what stands for it."""
    from utvm_deploy.frontend.files import tflite_schema as schema

    model = schema.read_model(data)
    for code in model.operatorCodes:
        if schema.name_of_code(code) == kind and code.version == version:
            if version > 1:
                code.version -= 1
            else:
                code.builtinCode = schema.code_of(_PLACEHOLDER)
    return schema.model_bytes(model)

"""What a kernel's C says, without how it is written: the text that is compared, and its digest.

Comments, line breaks, spaces and the kernel's own name do not count. Of assembly its instructions
count, and where its branches go, however it is cut into statements. The numbers of its local labels
do not count, nor how an operand is written: ``add r0, r0, #16`` is ``add r0, #0x10``. Sections do
not count either. A helper function counts where the kernel reaches it, wherever it stands: an edit
of a shared header changes the digest of the kernels that use what was edited.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from utvm_deploy.compiler.c_text import KERNEL_SECTION
from utvm_deploy.kernels.isa.naked_function import NEXT_STATEMENT

#: What stands for the kernel's own name.
KERNEL = "kernel"
_DIGITS = 12
_TOKEN = re.compile(
    r"""
    //[^\n]* | /\*.*?\*/                                # comments
    | ^[ \t]*\#[^\n]*                                   # directives
    | (?P<string>"(?:\\.|[^"\\\n])*")
    | '(?:\\.|[^'\\\n])*'
    | (?P<name>[A-Za-z_]\w*)
    | \.?\d(?:[eEpP][+-]|[\w.])*                        # numbers
    | <<=|>>=|\.\.\.|->|\+\+|--|<<|>>|&&|\|\||[-<>=!+*/%&|^]=
    | [^\w\s]
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ASSEMBLY_COMMENT = re.compile(r"(?:@|//).*")
_HEXADECIMAL = re.compile(r"#0[xX]([0-9a-fA-F]+)\b")
# In data, such as ".word 1, 1, 2", each number counts.
_REPEATED = re.compile(r"([^\s.]\S* )(\w+), \2, (?=.)")
_LOCAL_LABEL = re.compile(r"(\d+):")
_LABELLED = re.compile(r"(\d+:)\s*(.+)")
_LOCAL_TARGET = re.compile(r"(?<![\w#.%])(\d+)([bf])\b")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINE = re.compile(r"#\s*define\s+(\w+)")
_OPENS_CONDITION = re.compile(r"#\s*if")
_CLOSES_CONDITION = re.compile(r"#\s*endif")
#: These take parentheses and are not functions.
_NOT_FUNCTIONS = frozenset({"__attribute__", "__asm__", "_Alignas", "_Static_assert"})
_NAMES_SOMETHING = frozenset({";", "=", "["})
_TAGGED = frozenset({"struct", "union"})
_NEW_LINE_AFTER = frozenset("{};")
#: For headers, which all kernels share; other text is hardly ever the same.
_CACHED_PARTS = 256


def kernel_code(parts: Sequence[str], name: str) -> str:
    """The C function ``name`` with all it reaches in ``parts``, in one canonical form.

    ``parts`` are the pieces of one C file in their order. The result is C, too.
    """
    definitions = [one for part in parts for one in _definitions(part)]
    by_name: dict[str, list[_Definition]] = {}
    for one in definitions:
        for defined in one.names:
            by_name.setdefault(defined, []).append(one)
    if name not in by_name:
        raise ValueError(f"the text has no function {name}")
    # Anything may need what has no name, such as an include.
    waiting = [*by_name[name], *(one for one in definitions if not one.names)]
    reached: set[_Definition] = set()
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += [other for used in one.uses for other in by_name.get(used, ())]
    # Two headers may have the same text.
    kept = dict.fromkeys(one.text for one in definitions if one in reached)
    return re.sub(rf"\b{re.escape(name)}\b", KERNEL, "".join(kept))


def whole_code(parts: Iterable[str]) -> str:
    """All of the C in ``parts`` in the same canonical form."""
    return "".join(one.text for part in parts for one in _definitions(part))


def code_digest(code: str) -> str:
    """The digest of such a text. The order of definitions does not count."""
    lines = sorted(code.split("\n\n"))
    return hashlib.sha256("\n\n".join(lines).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class _Definition:
    """A function, a macro, a declaration; or all of them between ``#if`` and ``#endif``."""

    text: str
    names: frozenset[str] = field(compare=False)  # what it defines
    uses: frozenset[str] = field(compare=False)


@lru_cache(_CACHED_PARTS)
def _definitions(text: str) -> tuple[_Definition, ...]:
    return tuple(_defined(tokens) for tokens in _split(_tokens(text)))


def _tokens(text: str) -> list[str]:
    """The text's words; directives are one each, strings of assembly one for each instruction."""
    found: list[str] = []
    strings: list[str] = []
    text = text.replace("\\\n", " ").replace(NEXT_STATEMENT, "\n").replace(f"{KERNEL_SECTION} ", "")
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.startswith(("//", "/*")):
            continue
        if match["string"] is not None:
            strings.append(token[1:-1])
            continue
        if strings:
            found += _string_tokens(strings)
            strings.clear()
        token = token.lstrip()
        found.append(_one_line(_COMMENT.sub(" ", token)) if token.startswith("#") else token)
    return [*found, *_string_tokens(strings)]


def _string_tokens(strings: Sequence[str]) -> list[str]:
    """Adjacent strings, which are one to the compiler."""
    if not any("\\n" in one for one in strings):
        return ['"' + "".join(strings) + '"'] if strings else []
    lines = "".join(strings).replace("\\t", " ").split("\\n")
    kept: list[str] = []
    for line in (_one_line(_ASSEMBLY_COMMENT.sub("", line)) for line in lines):
        # A label may be written before its instruction.
        while labelled := _LABELLED.fullmatch(line):
            kept.append(labelled[1])
            line = labelled[2]
        kept.append(_plain(line))
    return [f'"{line}\\n"' for line in _numbered_labels([line for line in kept if line])]


def _plain(line: str) -> str:
    """An instruction with decimal numbers, without an offset of 0 or a target named twice."""
    line = _HEXADECIMAL.sub(lambda match: f"#{int(match[1], 16)}", line)
    line = line[:-5] + "]" if line.endswith(", #0]") else line
    repeated = _REPEATED.match(line)
    return line if repeated is None else f"{repeated[1]}{repeated[2]}, {line[repeated.end() :]}"


def _numbered_labels(lines: Sequence[str]) -> list[str]:
    """Assembly whose local labels count up from 1: a branch to the third label says ``3b``.

    A label that nothing in these lines branches to is left out; labels of one place become one.
    """
    labels = [match and match[1] for match in map(_LOCAL_LABEL.fullmatch, lines)]
    # The position of a line and of a name in it -> the position of the label that it names.
    targets: dict[tuple[int, int], int] = {}
    for position, line in enumerate(lines):
        for target in _LOCAL_TARGET.finditer(line):
            is_back = target[2] == "b"
            places = range(position, -1, -1) if is_back else range(position, len(lines))
            place = next((one for one in places if labels[one] == target[1]), None)
            if place is not None:
                targets[position, target.start()] = place
    reached = set(targets.values())
    numbers: dict[int, int] = {}  # position of a label -> its number
    kept: list[int] = []
    for position, label in enumerate(labels):
        if label is None:
            kept.append(position)
        elif position in reached:
            is_same_place = bool(kept) and kept[-1] in numbers
            numbers[position] = len(set(numbers.values())) + (not is_same_place)
            kept += [] if is_same_place else [position]

    def numbered(position: int) -> str:
        def name(target: re.Match[str]) -> str:
            place = targets.get((position, target.start()))
            return target[0] if place is None else f"{numbers[place]}{target[2]}"

        return _LOCAL_TARGET.sub(name, lines[position])

    return [
        f"{numbers[position]}:" if position in numbers else numbered(position) for position in kept
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _split(tokens: Sequence[str]) -> Iterator[list[str]]:
    """The tokens of each definition."""
    current: list[str] = []
    depth = conditions = 0
    is_function = False
    for token in tokens:
        before = current[-1] if current else ""
        current.append(token)
        is_end = False
        if token.startswith("#"):
            conditions += bool(_OPENS_CONDITION.match(token))
            conditions -= bool(_CLOSES_CONDITION.match(token))
            # An attribute may stand between #if and #endif, before what it belongs to.
            code = next((one for one in reversed(current) if not one.startswith("#")), ";")
            is_end = code in (";", "}")
        elif token in ("{", "("):
            if token == "{" and depth == 0:
                is_function = before == ")"
            depth += 1
        elif token in ("}", ")"):
            depth -= 1
            is_end = token == "}" and is_function
        elif token == ";":
            is_end = True
        if is_end and depth == 0 and conditions == 0:
            yield current
            current = []
    if current:
        yield current


def _defined(tokens: Sequence[str]) -> _Definition:
    names: set[str] = set()
    uses: set[str] = set()
    depth = 0
    for index, token in enumerate(tokens):
        after = tokens[index + 1] if index + 1 < len(tokens) else ""
        if token.startswith(("#", '"')):
            uses.update(_NAME.findall(token))
            names.update(_DEFINE.findall(token))
        elif token in ("{", "("):
            depth += 1
        elif token in ("}", ")"):
            depth -= 1
        elif _NAME.match(token):
            uses.add(token)
            is_tag = after == "{" and index > 0 and tokens[index - 1] in _TAGGED
            is_function = after == "(" and token not in _NOT_FUNCTIONS
            if depth == 0 and (is_tag or is_function or after in _NAMES_SOMETHING):
                names.add(token)
    # The names in an enum's braces are seen by everyone.
    if "enum" in tokens:
        names.clear()
    return _Definition(_written(tokens), frozenset(names), frozenset(uses))


def _written(tokens: Sequence[str]) -> str:
    """A statement or an instruction a line, and an empty line at the end."""
    lines: list[str] = []
    line: list[str] = []
    parentheses = 0

    def end_line() -> None:
        if line:
            lines.append(" ".join(line))
            line.clear()

    for token in tokens:
        if token.startswith("#") or token.endswith('\\n"'):
            end_line()
            lines.append(token)
            continue
        parentheses += (token == "(") - (token == ")")
        line.append(token)
        if token in _NEW_LINE_AFTER and parentheses == 0:
            end_line()
    end_line()
    return "\n".join(lines) + "\n\n"

"""C of a bundle's example and self-test that gives the model its inputs and runs it."""

from __future__ import annotations

from textwrap import indent

from utvm_deploy.compiler.c_text import c_type
from utvm_deploy.compiler.compiled.model import CompiledModel, InputRows
from utvm_deploy.compiler.emission.pools import pool_arguments
from utvm_deploy.graph.stream import StreamFacts

_COPY_INPUTS = """\
    for (uint32_t input = 0u; input < @UPPER@_INPUT_COUNT; input++) {
        const uint8_t *from = sample_inputs[sample][input];
        uint8_t *to = arena + input_tensors[input].offset;
        for (uint32_t i = 0u; i < input_tensors[input].bytes; i++) {
            to[i] = from[i];
        }
    }
    @NAME@_run(arena@POOL_ARGUMENTS@);"""

_PRINT = """\
    const @OUTPUT_TYPE@ *output = @NAME@_output_0(arena);
    for (uint32_t i = 0; i < @UPPER@_OUTPUT_0_ELEMENTS; i++) {
        printf("%g\\n", @OUTPUT_VALUE@);
    }"""

_STREAM_README = """
## A stream

{manual}
What a run needs of earlier columns stays in the arena, so each arena is a separate stream:

    @NAME@_reset(arena);  // before each recording
{loop}
        @NAME@_run(arena@POOL_ARGUMENTS@);
        // @NAME@_output_0(arena) has the answer
    }}

The self-test plays hops that follow each other.
"""
_ENDLESS = """\
    for (;;) {
        // copy the next columns to @NAME@_input_0(arena)"""
#: Where an input says the end, the caller's function copies the columns that are left.
_ENDING = """\
    for (int32_t behind = 0; behind < {behind};) {{
        // Your function copies the next {hop}, or those that the recording still has, and counts.
        const int32_t copied = next_columns(@NAME@_input_0(arena));
        *@NAME@_input_1(arena) = {hop} - copied;  // columns behind the end
        behind += {hop} - copied;"""

_PUSH_ROWS = """\
    // One row at a time, or three, or all; the result must be the same.
    static const uint32_t counts[] = {1u, 3u, @UPPER@_INPUT_ROWS};
    const uint32_t most = counts[sample % 3u];
    const uint8_t *rows = sample_inputs[sample][0];
    int32_t missing = (int32_t)@UPPER@_INPUT_ROWS;
    while (missing > 0) {
        const uint32_t n = most < (uint32_t)missing ? most : (uint32_t)missing;
        missing = @NAME@_push_rows(arena@POOL_ARGUMENTS@, \
(const @INPUT_TYPE@ *)(const void *)rows, n);
        rows += n * @UPPER@_INPUT_ROW_BYTES;
    }"""

_ROWS_README = """
## Rows of the input

The input is never whole in the arena. `@NAME@_push_rows(arena{pools}, rows, n)` takes \
the next `n` of its
{count} rows, of {row_bytes} bytes each, and runs the layers that waited for them. It returns how
many rows are missing: 0 when the outputs are there. It returns -1, and writes nothing, if `n` is 0
or more than are missing. Call `@NAME@_reset(arena)` once before the first row. A row that the model
waits for takes longer than one that it only keeps.
"""


def run_values(compiled: CompiledModel) -> dict[str, str]:
    """What the templates say of inputs and of a run, by placeholder."""
    rows, pools = compiled.input_rows, pool_arguments(compiled.pools)
    if rows is None:
        fill, run = _fill_inputs(compiled), f"    {compiled.name}_run(arena{pools});"
        it = compiled.stream
        return {
            "RUN": f"{fill}\n{run}\n\n{_PRINT}"
            if it is None
            else _hops(it, _fill_inputs(compiled, f"hop < {it.runs + 1}u ? 0 : {it.hop}"), run),
            "WAIT": "" if it is None else _wait(it, "return"),
            "FILL_INPUTS": fill,
            "RUN_ARENA": run,
            "RUN_SAMPLE": _COPY_INPUTS,
            "INPUT_TYPE": "",
            "RUN_FUNCTION": f"{compiled.name}_run()",
            "ARENA_HOLDS": "inputs and outputs included",
            "ROWS_TEXT": "" if it is None else _stream_readme(it),
        }
    row, push = _zero_row(compiled, rows), _push_zeros(compiled)
    return {
        "RUN": f"{row}\n{push}\n\n{_PRINT}",
        "WAIT": "",
        "FILL_INPUTS": row,
        "RUN_ARENA": push,
        "RUN_SAMPLE": _PUSH_ROWS,
        "INPUT_TYPE": c_type(rows.buffer.dtype),
        "RUN_FUNCTION": f"{compiled.name}_push_rows()",
        "ARENA_HOLDS": "outputs and windows of the input's rows included",
        "ROWS_TEXT": _ROWS_README.format(count=rows.count, row_bytes=rows.row_bytes, pools=pools),
    }


def _stream_readme(it: StreamFacts) -> str:
    loop = _ENDING.format(behind=it.behind, hop=it.hop) if it.ends else _ENDLESS
    return _STREAM_README.format(manual="\n".join(it.manual), loop=loop)


def _hops(it: StreamFacts, fill: str, run: str) -> str:
    """C of an example that plays hops up to the second whole answer, and prints whole answers.

    Where an input says the end, the recording ends there, and its last answers follow.
    """
    told = "    // A microphone or a sensor writes the next columns here."
    body = f"{told}\n{fill}\n{run}\n{_wait(it, 'continue')}{_PRINT}"
    hops = it.runs + 1 + (-(-it.behind // it.hop) if it.ends else 0)
    loop = f"    for (uint32_t hop = 0; hop < {hops}u; hop++) {{"
    return f"{loop}\n{indent(body, '    ')}\n    }}"


def _wait(it: StreamFacts, leave: str) -> str:
    """C that leaves out the answers before the first whole one."""
    if it.runs < 2:
        return ""
    return (
        "    // Earlier answers know padding in place of columns.\n"
        "    static uint32_t runs = 0;\n"
        f"    if (runs < {it.runs - 1}u) {{\n        runs++;\n        {leave};\n    }}\n"
    )


def _fill_inputs(compiled: CompiledModel, behind: str = "0") -> str:
    """C that writes zeros; ``behind`` is C of how many columns are behind a recording's end."""
    lines = []
    for index, buffer in enumerate(compiled.inputs):
        macro = f"{compiled.name.upper()}_INPUT_{index}"
        if index and compiled.stream is not None and compiled.stream.ends:
            told = "  // columns behind the end"
            lines.append(f"    *{compiled.name}_input_{index}(arena) = {behind};{told}")
            continue
        zero = (
            f"{macro}_ZERO_POINT"
            if buffer.zero_point is not None
            else ("0.0f" if c_type(buffer.dtype) == "float" else "0")
        )
        lines += [
            f"    {c_type(buffer.dtype)} *input_{index} = {compiled.name}_input_{index}(arena);",
            f"    for (uint32_t i = 0; i < {macro}_ELEMENTS; i++) {{",
            f"        input_{index}[i] = {zero};",
            "    }",
        ]
    return "\n".join(lines)


def _zero_row(compiled: CompiledModel, rows: InputRows) -> str:
    upper, kind = compiled.name.upper(), c_type(rows.buffer.dtype)
    zero = f"{upper}_INPUT_0_ZERO_POINT" if rows.buffer.zero_point is not None else "0"
    return "\n".join(
        [
            "    // A camera or a microphone writes a new row here each time.",
            f"    static {kind} row[{upper}_INPUT_ROW_BYTES / sizeof({kind})];",
            f"    for (uint32_t i = 0; i < {upper}_INPUT_ROW_BYTES / sizeof({kind}); i++) {{",
            f"        row[i] = {zero};",
            "    }",
        ]
    )


def _push_zeros(compiled: CompiledModel) -> str:
    given = f"arena{pool_arguments(compiled.pools)}, row, 1"
    lines = [f"while ({compiled.name}_push_rows({given}) > 0) {{", "}"]
    return "\n".join(f"    {line}" for line in lines)

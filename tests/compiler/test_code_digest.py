"""What changes the digest of a kernel's C, and what does not."""

from __future__ import annotations

import pytest

from utvm_deploy.compiler.c_text import KERNEL_SECTION, placed
from utvm_deploy.compiler.lowering.code_digest import code_digest, kernel_code, whole_code
from utvm_deploy.kernels.isa.naked_function import NEXT_STATEMENT, naked_function

HEADER = """\
// Adds.
static inline int32_t add(int32_t a, int32_t b) { return a + b; }
#define TWICE(x) ((x) * 2)
#if defined(FAST)
static int32_t product(int32_t a) {
    __asm__("mul r0, r0, r0\\n"
            "bx lr\\n");
}
#else
static int32_t product(int32_t a) { return a * a; }
#endif
struct pair {
    int32_t left;
};
static int32_t unused(int32_t a) { return a; }
"""
KERNEL = """\
void conv_12ab(const int8_t *restrict x, int8_t *restrict y) {
    for (int32_t i = 0; i < 4; ++i) {
        y[i] = (int8_t)add(TWICE(x[i]), product(x[i]));
    }
}
"""


def digest(*parts: str, name: str = "conv_12ab") -> str:
    return code_digest(kernel_code(parts, name))


SAME = digest(HEADER, KERNEL)


def assembly(*lines: str) -> str:
    body = "".join(f'"{line}\\n"' for line in lines)
    return digest(HEADER, KERNEL.replace("{\n", "{\n" + f"__asm__({body});\n", 1))


LOOP = assembly("1:", "subs r0, #1", "beq 2f", "bne 1b", "2:", "bx lr")


def test_the_numbers_of_local_labels_do_not_count() -> None:
    assert assembly("7:", "subs r0, #1", "beq 3f", "bne 7b", "3:", "bx lr") == LOOP
    assert assembly("1:", "subs r0, #1", "beq 1f", "bne 1b", "1:", "bx lr") == LOOP
    assert assembly("1:", "9:", "subs r0, #1", "beq 2f", "bne 9b", "3:", "2:", "bx lr") == LOOP


def test_how_assembly_is_cut_into_statements_does_not_count() -> None:
    lines = ["1:", *(f"add r0, r0, #{n % 16}" for n in range(300)), "bne 1b", "bx lr"]
    text = naked_function("helper", ["int x"], lines, "", "1")
    assert text.count(NEXT_STATEMENT) == 1
    assert whole_code([text]) == whole_code([text.replace(NEXT_STATEMENT, "\n")])


def test_the_section_of_functions_does_not_count() -> None:
    found = placed(HEADER)
    assert found.count(f"{KERNEL_SECTION} static") == HEADER.count("static ") == 4
    assert digest(found, f"{KERNEL_SECTION} {KERNEL}") == SAME


@pytest.mark.parametrize(
    ("code", "is_function"),
    [
        ("UTVM_NAKED static void f(int x) {", True),
        ("__attribute__((noinline)) static const int8_t *f(int x) {", True),
        ("static inline void\nf(int x) {", True),
        ("static const int8_t table[] = {f(1)};", False),
        ("static const __attribute__((aligned(4))) int8_t table[2];", False),
    ],
)
def test_only_functions_are_put_into_the_section_of_kernels(code: str, is_function: bool) -> None:
    assert placed(code) == (f"{KERNEL_SECTION} {code}" if is_function else code)


def test_how_an_operand_is_written_does_not_count() -> None:
    plain = assembly("add r0, #16", "ldr r1, [r0]", "bx lr")
    assert assembly("add r0, r0, #0x10", "ldr r1, [r0, #0]", "bx lr") == plain
    assert assembly("add r0, r1, #16", "ldr r1, [r0]", "bx lr") != plain
    assert assembly("add r0, #17", "ldr r1, [r0]", "bx lr") != plain
    assert assembly("1: subs r0, #1", "beq 2f", "bne 1b", "2: bx lr") == LOOP


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([".word 1, 1, 2"], [".word 1, 2"]),
        (["2:", "nop", "1: nop", "b 2b"], ["1:", "nop", "1: nop", "b 1b"]),
        (["b 1f; nop", "1:", "nop", "nop"], ["b 1f; nop", "nop", "1:", "nop"]),
        (["ldr r0, 1f + 4", "1:", "nop", "nop"], ["ldr r0, 1f + 4", "nop", "1:", "nop"]),
        (
            [".byte (1f - 2f) / 2", "1:", "nop", "nop", "2:"],
            [".byte (1f - 2f) / 2", "nop", "1:", "nop", "2:"],
        ),
    ],
)
def test_other_code_has_another_digest(one: list[str], other: list[str]) -> None:
    assert assembly(*one) != assembly(*other)


def test_where_a_branch_goes_counts() -> None:
    assert assembly("1:", "subs r0, #1", "beq 1b", "bne 1b", "2:", "bx lr") != LOOP
    assert assembly("1:", "subs r0, #1", "2:", "beq 2b", "bne 1b", "bx lr") != LOOP


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// Adds.", "/* Adds two\n   numbers. */"),
        ("{ return a + b; }", "{\n    return a\n        + b; // sum\n}"),
        ('r0\\n"\n            "bx', 'r0\\n\\t"\n  "bx'),
        ('r0\\n"\n            "bx', "r0\\nbx"),
        ("mul r0, r0, r0", "  mul  r0, r0, r0 @ square"),
        ("static int32_t unused(int32_t a) { return a; }", ""),
        ("return a; }", "return -a; }"),
        ("struct pair {\n    int32_t left;", "struct pair {\n    int32_t right;"),
    ],
)
def test_layout_comments_and_what_is_not_reached_do_not_count(old: str, new: str) -> None:
    assert old in HEADER
    assert digest(HEADER.replace(old, new), KERNEL) == SAME


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a + b", "a - b"),
        ("(x) * 2", "(x) * 3"),
        ("mul r0, r0, r0", "mul r0, r0, r1"),
        ('"bx lr\\n"', '"nop\\nbx lr\\n"'),
        ("return a * a", "return a * 2 * a"),
        ("defined(FAST)", "defined(SLOW)"),
        ("*restrict x", "*x"),
        ("i < 4", "i < 5"),
    ],
)
def test_what_is_computed_counts(old: str, new: str) -> None:
    assert old in HEADER + KERNEL
    assert digest(HEADER.replace(old, new), KERNEL.replace(old, new)) != SAME


def test_neither_the_kernels_name_counts_nor_where_helpers_stand() -> None:
    renamed = KERNEL.replace("conv_12ab", "conv_34cd")
    assert digest(HEADER, renamed, name="conv_34cd") == SAME
    sum_, rest = HEADER.split("#define", 1)
    assert digest(f"#define{rest}", sum_, KERNEL) == SAME


def test_the_canonical_form_is_its_own() -> None:
    code = kernel_code([HEADER, KERNEL], "conv_12ab")
    assert kernel_code([code], "kernel") == code


def test_what_a_macro_or_assembly_names_is_reached() -> None:
    parts = "static int called(void) { return 1; }\n", "#define CALL called()\n"
    kernel = "void f(int *y) {\n    *y = CALL;\n}\n"
    assert "return 1" in kernel_code([*parts, kernel], "f")
    assert "return 1" in kernel_code([parts[0], 'void f(void) { __asm__("bl called"); }'], "f")


def test_all_of_a_file_counts_where_no_function_is_asked_for() -> None:
    assert "unused" in whole_code([HEADER])
    with pytest.raises(ValueError, match="no function g"):
        kernel_code([HEADER], "g")

"""The deepest call path, from what GCC writes of each source."""

from __future__ import annotations

from utvm_deploy.project.stack_use import call_graph, deepest, with_assembly, with_table

#: As ``gcc -fcallgraph-info=su`` writes them.
ENTRY = r"""
graph: { title: "m.c"
node: { title: "m.c:layer_0" label: "layer_0\nm.c:8:13\n24 bytes (static)" }
node: { title: "kernel" label: "kernel\nm_private.h:59:6" shape : ellipse }
edge: { sourcename: "m.c:layer_0" targetname: "kernel" label: "m.c:9:5" }
node: { title: "m.c:layer_1" label: "layer_1\nm.c:18:13\n400 bytes (static)" }
node: { title: "m_run" label: "m_run\nm.c:137:6\n16 bytes (static)" }
node: { title: "__indirect_call" label: "Indirect Call Placeholder" shape : ellipse }
edge: { sourcename: "m_run" targetname: "__indirect_call" label: "m.c:139:9" }
}
"""
KERNELS = r"""
graph: { title: "k.c"
node: { title: "k.c:tile" label: "tile\nk.c:27:24\n0 bytes (static)" }
node: { title: "kernel" label: "kernel\nk.c:88:6\n296 bytes (static)" }
edge: { sourcename: "kernel" targetname: "k.c:tile" label: "k.c:90:3" }
}
"""
ASSEMBLY = r"""
UTVM_KERNEL_SECTION UTVM_NAKED static void tile(
    int a UTVM_UNUSED) {
    __asm__(
        ".syntax unified\n"
        "push {r4-r11, lr}\n"
        "sub sp, #52\n"
        "vpush {d8-d9}\n"
        "pop {r4-r11, pc}\n");
}
"""


def test_the_deepest_path_goes_through_the_table_and_the_assembly() -> None:
    functions = with_table(with_assembly(call_graph([ENTRY, KERNELS]), [ASSEMBLY]), "m")
    found = deepest(functions, "m_run")
    assert [one.name for one in found.path] == ["m_run", "m.c:layer_0", "kernel", "k.c:tile"]
    assert [one.frame_bytes for one in found.path] == [16, 24, 296, 36 + 52 + 16]
    assert found.total_bytes == 16 + 24 + 296 + 104
    assert found.notes == ()


def test_a_frame_of_risc_v_is_counted() -> None:
    assembly = ASSEMBLY.replace("push {r4-r11, lr}", "addi sp, sp, -48")
    functions = with_assembly(call_graph([KERNELS]), [assembly.replace("pop {", "vpop {")])
    assert functions["k.c:tile"].frame_bytes == 48 + 52 + 16


def test_what_cannot_be_bounded_is_said() -> None:
    found = deepest(call_graph([ENTRY]), "m_run")
    assert found.notes == (
        "m_run calls functions through a pointer; what they take is not counted",
    )
    found = deepest(call_graph([ENTRY]), "m.c:layer_0")
    assert (found.total_bytes, found.notes) == (
        24,
        ("what kernel takes is not known, and not counted",),
    )


def test_recursion_ends_and_is_said() -> None:
    text = r"""
node: { title: "a" label: "a\na.c:1:1\n8 bytes (static)" }
node: { title: "b" label: "b\na.c:2:1\n16 bytes (dynamic)" }
edge: { sourcename: "a" targetname: "b" label: "" }
edge: { sourcename: "b" targetname: "a" label: "" }
"""
    found = deepest(call_graph([text]), "a")
    assert found.total_bytes == 8
    assert found.notes == (
        "what b takes is not known, and not counted",
        "a calls itself; it is counted once",
    )

"""The C texts in the folders ``c`` of the kernels."""

from __future__ import annotations

from importlib import resources

from utvm_deploy.targets.table import CORES

_KERNELS = "utvm_deploy.kernels"
#: Where the compiler takes assembly with vector instructions of RISC-V, and the core has them. The
#: assembly is for addresses of 32 bits, and for vectors of at least 128 bits.
VECTORS = (
    "defined(__riscv) && defined(__GNUC__) && __riscv_xlen == 32 && (defined(UTVM_VECTORS) || "
    "(defined(__riscv_zve32x) && __riscv_v_min_vlen >= 128))"
)
#: For a core with vectors: all who compile a model's files get the kernels that were measured.
VECTORS_ON = """\
// The kernels take vector instructions of RISC-V (Zve32x, VLEN of at least 128), with any -march.
// Define UTVM_NO_VECTORS for a core without them.
#if defined(UTVM_NO_VECTORS)
#undef UTVM_VECTORS
#elif defined(__riscv) && !defined(UTVM_VECTORS)
#define UTVM_VECTORS
#endif

"""


def family_text(family: str, name: str) -> str:
    """The C of ``c/NAME.h`` in the package of a family."""
    return _read(f"{_KERNELS}.native.{family}", name)


def shared_text(name: str) -> str:
    """The C of ``c/NAME.h`` that all families share."""
    return _read(_KERNELS, name)


def bytes_texts(core: str) -> tuple[str, ...]:
    """The C that copies and fills bytes, by vectors or words where the core can."""
    if core in CORES and CORES[core].vectors:
        vector, words = shared_text("utvm_bytes_vector"), shared_text("utvm_bytes_aligned")
        return (f"#if {VECTORS}\n{vector}#else\n{words}#endif\n",)
    if core in CORES and CORES[core].needs_aligned_words:
        return (shared_text("utvm_bytes_aligned"),)
    return shared_text("utvm_bytes_copy"), shared_text("utvm_bytes_fill")


def replaced(text: str, *replacements: tuple[str, str, int]) -> str:
    """The text with each (old, new, times) replaced, one after the other.

    ValueError if ``old`` is not in the text exactly ``times`` times. So a C text cannot lose a
    placeholder unnoticed.
    """
    for old, new, times in replacements:
        found = text.count(old)
        if found != times:
            raise ValueError(f"{old!r} stands {found} times in a C text, not {times}:\n{text}")
        text = text.replace(old, new)
    return text


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath(f"c/{name}.h").read_text(encoding="ascii")

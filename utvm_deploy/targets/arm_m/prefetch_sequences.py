"""Sequences that show whether a Cortex-M7 works while a line of its data cache is on its way.

Arm DDI 0489F 5.9 says that a linefill returns the requested data first and does not block. It says
neither what PLD does nor how many linefills are under way at once. Configuration ref has one, and
each load waits for all of its line; PLD starts none. So the cycles here are those of a core without
overlap. Fewer cycles on a chip are the overlap: of four divisions, which take 28 cycles by LLVM's
schedule, and of linefills, which take 22 each in this configuration.
"""

from __future__ import annotations

from utvm_deploy.targets.contract.sequences import Case

# A division may be faster by its operands, so the dividend is large.
_DIVIDEND = "; movw r6, #0xffff; movt r6, #0x7fff"
_WORK = "; ".join(["udiv r5, r6, r3"] * 4)
_NEXT = "add.w r0, r0, #WAY"
_NO_OVERLAP = "Arm DDI 0489F 5.9, configuration ref: no overlap"
#: Name, instructions, and cycles without overlap. These are 28 for the work, 22 for each line, and
#: 1 for what issues with the load. An addition is an address 1 or 2 cycles later, and a second
#: access to a bank takes 1.
_ROWS = (
    ("work", f"{_WORK}; {_NEXT}", 29),
    ("work, ldr that misses", f"{_WORK}; ldr.w r4, [r0]; {_NEXT}", 51),
    ("ldr that misses, work", f"ldr.w r4, [r0]; {_NEXT}; {_WORK}", 51),
    ("pld, work, ldr of that line", f"pld [r0]; {_WORK}; ldr.w r4, [r0]; {_NEXT}", 53),
    ("pld right before ldr of that line", f"pld [r0]; ldr.w r4, [r0]; {_NEXT}", 25),
    (
        "pld of two lines, work, ldr of both",
        f"pld [r0]; pld [r1]; {_WORK}; ldr.w r4, [r0]; ldr.w r5, [r1]; {_NEXT}; add.w r1, r1, #WAY",
        78,
    ),
    ("ldr that misses, end of that line", f"ldr.w r4, [r0]; ldr.w r5, [r0, #28]; {_NEXT}", 25),
)


def prefetch_cases(setup: str) -> tuple[Case, ...]:
    """The cases; ``setup`` lets r0 and r1 point behind the data cache."""
    return tuple(
        Case(
            name, body, cycles, _NO_OVERLAP, figure="rich", setup=setup + _DIVIDEND, is_cached=True
        )
        for name, body, cycles in _ROWS
    )

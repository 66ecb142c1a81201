"""Which of many records are worth shipping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from utvm_deploy.records import Record, Setting

#: The most candidates of a kernel that are kept; each is at most this share slower than the
#: fastest.
KEPT_CANDIDATES = 3
KEPT_LOSS = 0.03
#: The choice of forms whose weights take less flash; the fastest of them is kept, too.
SMALL = "int8"
#: The fastest with at most this share of the fastest one's scratch is kept, too.
KEPT_SCRATCH = 2 / 3


def worth_shipping(records: Iterable[Record]) -> Iterator[Record]:
    """What compiling needs of them, by setting: each kernel's fastest few, the fastest that takes
    less flash, the fastest that takes less scratch, and the default.
    """
    groups: dict[tuple[Setting, str], list[Record]] = {}
    for record in records:
        if record.measurement.is_ok:
            groups.setdefault((record.setting, record.kernel.key), []).append(record)
    for _, some in sorted(groups.items(), key=lambda item: (item[0][0].unit, item[0][1])):
        ranked = sorted(some, key=lambda r: (r.measurement.ticks_min, not r.is_default))
        most = ranked[0].measurement.ticks_min * (1 + KEPT_LOSS)
        near = [r for r in ranked[:KEPT_CANDIDATES] if r.measurement.ticks_min <= most]
        small = [record for record in ranked if record.candidate.choice(SMALL)]
        slim = [r for r in ranked if r.scratch_bytes <= KEPT_SCRATCH * ranked[0].scratch_bytes]
        near += [record for record in (*small[:1], *slim[:1]) if record not in near]
        yield from dict.fromkeys([*near, *(record for record in some if record.is_default)])

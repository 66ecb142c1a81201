"""CMSIS device packs: the .pdsc of a .pack, or a .pdsc alone.

The elements and attributes are those of the pack description's public schema, PACK.xsd 1.7. A
device inherits ``processor`` and ``memory`` from subFamily and family, attribute by attribute.
"""

from __future__ import annotations

import difflib
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from lzma import LZMAError
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.new_boards.description import (
    Description,
    Fact,
    Memory,
    check_core,
    check_part,
    kind_of_ram,
    merged,
)

#: The largest description that is read; those of 2026 have at most 20 MB.
MOST_PDSC_BYTES = 64 << 20
#: The most tags of a description: 64 MiB of them alone would take gigabytes.
MOST_TAGS = 4_000_000
#: The most memories of a device; those of 2026 have some 30.
MOST_MEMORIES = 500
_LEVELS = ("family", "subFamily", "device", "variant")
_NAMES = ("Dname", "Dvariant")
#: ``Dfpu`` -> the unit; "1" and "FPU" leave the precision open.
_FPUS = {"NO_FPU": "none", "0": "none", "SP_FPU": "single", "DP_FPU": "double"}

_Attributes = Mapping[str, str]


def read_pack(path: Path, device: str | None) -> Description:
    """What a pack says of a device: ``NAME``, or ``NAME:PNAME`` for one of several processors.

    ``device`` may lack the package of the part, and be None if the pack has one device. Memories of
    the result are in bytes. Raises BoardError if the file is not a pack, lacks the device, or does
    not say enough for a board file.
    """
    root = _parsed(_pdsc(path), path)
    devices = {name: chain for chain in _chains(root) for name in _names(chain)}
    if not devices:
        raise BoardError(f"{path} describes no device; give a device family pack (DFP)")
    wanted, _, pname = (device or "").partition(":")
    name = _chosen(devices, wanted, path)
    check_part(name, "the device")
    chain = devices[name]
    processor = _processor(chain, pname, f"{path.name}: {name}")
    source, where = f"{path.name} {_version(root)}".strip(), f"<processor> of {name}"
    core = processor["Dcore"].lower().replace("+", "plus")
    facts = check_core(core, f"the core {processor['Dcore']} of {name} in {path.name}")
    clock = _number(processor, "Dclock")
    fpu = processor.get("Dfpu", "")
    unit = _FPUS.get(fpu) or (facts.fpus[0] if fpu in ("FPU", "1") and facts.fpus else "none")
    return Description(
        device=name,
        source=source,
        core=Fact(core, f"Dcore={processor['Dcore']}, {where}"),
        memories=_memories(chain, processor.get("Pname", ""), path.name),
        vendor=_vendor(chain),
        clock_hz=Fact(clock, f"Dclock, {where}: its highest") if clock else None,
        fpu=Fact(unit if unit in facts.fpus else "none", f"Dfpu={fpu}, {where}") if fpu else None,
        dsp=_flag(processor, "Ddsp", ("DSP", "1"), where),
        mve=_flag(processor, "Dmve", ("MVE", "FP_MVE"), where),
        pyocd=Fact(name.lower(), "pyOCD knows it once you ran: pyocd pack install " + name),
        cautions=_cautions(name, clock),
    )


def _cautions(name: str, clock: int) -> tuple[str, ...]:
    if not clock:
        return ()
    return (
        f"cpu.clock_hz is the highest clock of {name}, and nothing here sets its clock tree: "
        "write the clock at which it runs, there and in [project.timer], and delete this line",
    )


def _pdsc(path: Path) -> bytes:
    """The description, of a bounded size however the archive compresses it."""
    try:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                data = file.read(MOST_PDSC_BYTES + 1)
        else:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name.lower().endswith(".pdsc")]
                if not names:
                    raise BoardError(f"{path} has no .pdsc file; give a CMSIS pack")
                with archive.open(min(names, key=lambda name: name.count("/"))) as member:
                    data = member.read(MOST_PDSC_BYTES + 1)
    except OSError as exc:
        raise BoardError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except (zipfile.BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, ValueError) as exc:
        raise BoardError(f"{path} is a damaged pack ({exc}); download it again") from exc
    if len(data) > MOST_PDSC_BYTES:
        raise BoardError(f"the description in {path} has more than {MOST_PDSC_BYTES >> 20} MiB")
    return data


def _parsed(data: bytes, path: Path) -> Element:
    """The root; a document type is refused, as entities could expand without end."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if "<!DOCTYPE" in text:
        raise BoardError(f"{path} declares a document type, which no pack does; give another file")
    if text.count("<") > MOST_TAGS:
        raise BoardError(f"the description in {path} has more than {MOST_TAGS:,} tags")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as exc:
        raise BoardError(f"{path} is neither a .pack nor a .pdsc file ({exc})") from exc
    if root.tag != "package":
        raise BoardError(f"{path} has the element <{root.tag[:40]}>, not <package>; give a pack")
    return root


def _chains(root: Element) -> Iterator[tuple[Element, ...]]:
    """From the family down to each device and each variant."""

    def below(chain: tuple[Element, ...]) -> Iterator[tuple[Element, ...]]:
        if chain[-1].tag in _LEVELS[2:]:
            yield chain
        for child in chain[-1]:
            if child.tag in _LEVELS[len(chain) - 1 :] and child.tag != chain[-1].tag:
                yield from below((*chain, child))

    for family in root.iterfind("./devices/family"):
        yield from below((family,))


def _names(chain: Sequence[Element]) -> list[str]:
    return [name for key in _NAMES if (name := chain[-1].get(key, "").strip())]


def _chosen(devices: Mapping[str, object], wanted: str, path: Path) -> str:
    if not wanted and len(devices) == 1:
        return next(iter(devices))
    some = ", ".join(list(devices)[:3])
    if not wanted:
        raise BoardError(f"{path} has {len(devices)} devices; give --device, such as {some}")
    upper = {name.upper(): name for name in devices}
    part = wanted.upper()
    if part in upper:
        return upper[part]
    # In names, x is any letter; what a part has more is its package, and no digit of its number.
    patterns = {name: re.escape(name).replace("x", "[A-Z0-9]") for name in devices}
    fitting = [
        name
        for name, pattern in patterns.items()
        if name.upper().startswith(part)
        or re.match(rf"{pattern}(?:(?<![0-9])|(?![0-9]))", part, re.IGNORECASE)
    ]
    shortest = min(fitting, key=len, default="")
    if fitting and all(name.startswith(shortest) for name in fitting):
        return shortest
    near = fitting or [upper[one] for one in difflib.get_close_matches(part, upper, 3, 0.3)]
    names = ", ".join(near[:6]) or some
    what = f"has {len(fitting)} devices {wanted}" if fitting else f"has no device {wanted}"
    raise BoardError(f"{path} {what}; give --device with one of its names, such as {names}")


def _inherited(chain: Sequence[Element], tag: str, *keys: str) -> list[dict[str, str]]:
    """The elements of all levels, by their keys, the most specific ones last."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for level in chain:
        for element in level.findall(tag):
            key = tuple(element.get(one, "") for one in keys)
            found[key] = {**found.pop(key, {}), **element.attrib}
    return list(found.values())


def _processor(chain: Sequence[Element], pname: str, who: str) -> dict[str, str]:
    every = _inherited(chain, "processor", "Pname")
    common: dict[str, str] = next((one for one in every if not one.get("Pname")), {})
    named = {one["Pname"]: {**common, **one} for one in every if one.get("Pname")}
    if not named and not pname:
        found = common
    elif pname in named:
        found = named[pname]
    elif len(named) == 1 and not pname:
        found = next(iter(named.values()))
    else:
        device = who.rsplit(" ", 1)[-1]
        some = " or ".join(f"{device}:{one}" for one in named) or device
        has = ", ".join(named) or "one without a name"
        raise BoardError(f"{who} has these processors: {has}; give --device {some}")
    if not found.get("Dcore"):
        raise BoardError(f"{who} has no processor with a Dcore; give another pack")
    return found


def _memories(chain: Sequence[Element], pname: str, file: str) -> tuple[Memory, ...]:
    places = [
        one for one in _inherited(chain, "memory", "Pname", "name", "id") if _is_of(one, pname)
    ]
    if len(places) > MOST_MEMORIES:
        raise BoardError(f"{file} has {len(places)} memories for one device; give another pack")
    algorithms = [
        (_number(one, "start"), _number(one, "size"))
        for one in _inherited(chain, "algorithm", "Pname", "name", "start")
        if _is_of(one, pname)
    ]
    # The other name of the same memory, and its secure address if it has another one, are left out.
    places = [one for one in places if not one.get("alias")]
    if any("n" in _access(one) for one in places):
        places = [one for one in places if "s" not in _access(one)]
    # Where two overlap, the one that a level further down names wins.
    places.reverse()
    places.sort(key=lambda one: (not _is_on(one, "startup"), not _is_on(one, "default")))
    found = []
    for one in places:
        name = one.get("name") or one.get("id") or "memory"
        begin, size, access = _number(one, "start"), _number(one, "size"), _access(one)
        is_flash = "w" not in access and (
            _is_on(one, "startup")
            or _is_on(one, "default")
            or any(at <= begin < at + length for at, length in algorithms)
        )
        if not size or "p" in access or ("w" not in access and not is_flash):
            continue  # peripherals, and ROM that nobody can write
        kind = "flash" if is_flash else kind_of_ram(name)
        # Data memory that is tightly coupled has no path for instructions.
        runs = "x" in access and "dtcm" not in name.lower()
        boot = True if is_flash and _is_on(one, "startup") else None
        source = f'<memory {"name" if one.get("name") else "id"}="{name}"> of {file}'
        found.append(Memory(name, begin, size, kind, runs, source, boot))
    return merged(found)


def _is_of(one: _Attributes, pname: str) -> bool:
    return one.get("Pname", pname) in (pname, "")


def _access(one: _Attributes) -> str:
    """Old names say it: IROM1, IRAM1."""
    old = {"IROM": "rx", "IRAM": "rwx"}.get(one.get("id", "")[:4], "r")
    return one.get("access", old).lower()


def _is_on(one: _Attributes, key: str) -> bool:
    return one.get(key, "").strip().lower() in ("1", "true")


def _number(one: _Attributes, key: str) -> int:
    text = one.get(key, "0").strip()
    value = -1
    with suppress(ValueError):
        value = int(text, 16 if text.lower().startswith("0x") else 10)
    if not 0 <= value <= 1 << 32:
        raise BoardError(f"{key}={text[:40]!r} of the pack is not a number of 32 bits")
    return value


def _flag(one: _Attributes, key: str, yes: tuple[str, ...], where: str) -> Fact[bool] | None:
    return Fact(one[key] in yes, f"{key}={one[key]}, {where}") if key in one else None


def _vendor(chain: Sequence[Element]) -> Fact[str] | None:
    names = [level.get("Dvendor", "") for level in chain]
    name = next(filter(None, reversed(names)), "")
    return Fact(name.split(":")[0], f"Dvendor={name}") if name else None


def _version(root: Element) -> str:
    release = root.find("./releases/release")
    return release.get("version", "") if release is not None else ""

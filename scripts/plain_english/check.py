"""Checks that the project's prose is plain English.

    python scripts/plain_english/check.py                  what is wrong beyond the baseline
    python scripts/plain_english/check.py FILE...          everything that is wrong in these files
    python scripts/plain_english/check.py --write-baseline keep today's counts; they may only shrink

It finds sentences of more than 30 words, the phrases of `phrases.txt`, and lines of pages with more
than 100 columns. `phrases.txt` grows with everything that readers stumble over. `baseline.txt` has
the files that are not mended yet, each with its number of findings.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prose import lines_of_page, prose

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BASELINE = HERE / "baseline.txt"
PHRASES = HERE / "phrases.txt"
MOST_WORDS = 30
MOST_COLUMNS = 100
#: What is checked; folders with everything of this ending below them.
PLACES = (
    ("docs", ".md"),
    ("utvm_deploy", ".py"),
    ("README.md", ""),
    ("PROTOCOL.md", ""),
    ("ARCHITECTURE.md", ""),
    ("CONTRIBUTING.md", ""),
    ("SECURITY.md", ""),
)
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(\[*]|utvm)")
_WORD = re.compile(r"\w[\w'’.,-]*")


@dataclass(frozen=True)
class Phrase:
    """A pattern that readers stumble over, and what to write in its place."""

    pattern: re.Pattern[str]
    instead: str


@dataclass(frozen=True)
class Finding:
    line: int
    text: str


def phrases(text: str) -> list[Phrase]:
    """The phrases of a file like phrases.txt: `regular expression => what to write instead`."""
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, _, instead = line.partition("=>")
            found.append(Phrase(re.compile(rf"\b(?:{pattern.strip()})\b", re.I), instead.strip()))
    return found


def sentences(text: str) -> list[str]:
    return _END.split(" ".join(text.split()))


def findings(path: Path, stumbled: Sequence[Phrase]) -> Iterator[Finding]:
    """What is wrong with a file's prose."""
    # One search for all of them is much faster where nothing is found, which is nearly everywhere.
    any_phrase = re.compile("|".join(phrase.pattern.pattern for phrase in stumbled), re.I)
    for paragraph in prose(path):
        words = " ".join(paragraph.text.split())
        for phrase in stumbled if any_phrase.search(words) else ():
            for match in phrase.pattern.finditer(words):
                yield Finding(paragraph.line, f"{match.group()!r}: write {phrase.instead}")
        for sentence in sentences(words) if paragraph.has_sentences else ():
            count = len(_WORD.findall(sentence))
            if count > MOST_WORDS:
                start = " ".join(sentence.split()[:8])
                yield Finding(paragraph.line, f"a sentence of {count} words: {start} ...")
    if path.suffix == ".md":
        for number, line in lines_of_page(path.read_text(encoding="utf-8")):
            if len(line) > MOST_COLUMNS:
                yield Finding(number, f"{len(line)} columns")


def files(root: Path) -> list[Path]:
    """The files that are checked."""
    found: list[Path] = []
    for name, ending in PLACES:
        place = root / name
        found += sorted(place.rglob(f"*{ending}")) if ending else [place] * place.is_file()
    return found


def parsed(text: str) -> dict[str, int]:
    """A baseline: the number of findings that each file may have."""
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name: int(count) for count, name in rows}


def written(counts: dict[str, int]) -> str:
    rows = "".join(f"{count} {name}\n" for name, count in sorted(counts.items()) if count)
    return (
        f"# Findings in files that are not mended yet. Only --write-baseline changes this.\n{rows}"
    )


def grown(counts: dict[str, int], baseline: dict[str, int]) -> list[str]:
    """The files with more findings than their baseline."""
    return [name for name, count in sorted(counts.items()) if count > baseline.get(name, 0)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="show everything in these files")
    parser.add_argument("--write-baseline", action="store_true", help="keep today's lower counts")
    arguments = parser.parse_args(argv)
    stumbled = phrases(PHRASES.read_text(encoding="utf-8"))
    if arguments.files:
        paths = [path.resolve() for path in arguments.files]
        return _show({path.name: list(findings(path, stumbled)) for path in paths})
    found = {
        path.relative_to(ROOT).as_posix(): list(findings(path, stumbled)) for path in files(ROOT)
    }
    counts = {name: len(all_of_it) for name, all_of_it in found.items()}
    baseline = parsed(BASELINE.read_text(encoding="utf-8"))
    if arguments.write_baseline:
        before, now = sum(baseline.values()), sum(counts.values())
        if now > before:
            print(f"error: {now} findings, {before} in the baseline: mend them", file=sys.stderr)
            return 1
        BASELINE.write_text(written(counts), encoding="utf-8")
        return 0
    return _show({name: found[name] for name in grown(counts, baseline)})


def _show(found: dict[str, list[Finding]]) -> int:
    for name, all_of_it in found.items():
        for finding in sorted(all_of_it, key=lambda finding: finding.line):
            print(f"{name}:{finding.line}: {finding.text}")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

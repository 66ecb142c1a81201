"""A records file, line by line. A line that is wrong costs that line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from utvm_deploy.base.errors import RecordsError
from utvm_deploy.base.files import check_regular
from utvm_deploy.records.fields import NotJson, object_in, schema_of
from utvm_deploy.records.known import Records
from utvm_deploy.records.model_record import MODEL_SCHEMA, ModelRecord
from utvm_deploy.records.record import Record

log = logging.getLogger(__name__)

#: Numbers of skipped lines that a warning lists.
_LISTED = 8


def record_of(line: str | bytes) -> Record | ModelRecord:
    """What a line says; ValueError says what is wrong, NotJson where it may have been cut."""
    value = object_in(line, "a record")
    if schema_of(value) == MODEL_SCHEMA:
        return ModelRecord.from_json(value)
    return Record.from_json(value)


def read_records(path: Path) -> Records:
    """Every readable record of a file; a last line that was cut is left out."""
    try:
        check_regular(path)
        data = path.read_bytes()
    except FileNotFoundError:
        raise RecordsError(
            f"there is no records file {path}; `utvm tune MODEL --board B --trials N "
            f"--records {path}` makes it"
        ) from None
    except OSError as error:
        raise RecordsError(
            f"records file {path} cannot be read: {error.strerror}; give the one that `utvm tune` "
            "wrote"
        ) from error
    return Records(parsed(path, data))


def parsed(path: Path, data: bytes) -> Iterator[Record | ModelRecord]:
    """Of a file's bytes; RecordsError if they hold something else than records."""
    lines = data.split(b"\n")
    skipped: list[int] = []
    found = 0
    first_reason = ""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = record_of(line)
        except ValueError as error:
            if number == len(lines) and isinstance(error, NotJson):
                continue  # cut by the end of the process that wrote it
            skipped.append(number)
            first_reason = first_reason or f"line {number}: {error}"
            continue
        found += 1
        yield record
    if skipped and not found:
        raise RecordsError(
            f"{path} is not a records file ({first_reason}); give the one that `utvm tune` wrote"
        )
    if skipped:
        log.warning("%s: %s", path, _told(skipped, first_reason))


def _told(skipped: list[int], reason: str) -> str:
    """Which lines are skipped, and why the first of them is."""
    if len(skipped) == 1:
        return f"skipped {reason}"
    listed = ", ".join(map(str, skipped[:_LISTED]))
    more = f" and {len(skipped) - _LISTED} more" if len(skipped) > _LISTED else ""
    return f"skipped {len(skipped)} lines ({listed}{more}), the first because of {reason}"

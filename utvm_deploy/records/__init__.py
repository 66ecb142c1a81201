"""Records: what was measured, one JSON object a line in a file that only ever grows.

    kernel + setting (core, compiler, version, unit, cycle model) + candidate  ->  measurement
    whole model + setting + board + a candidate of each kernel                 ->  measurement

``tune`` writes them (``tuning/records_file.py``), the compiler reads them. Unknown fields, of later
versions, are ignored. What a candidate means is the matter of ``kernels``.
"""

from utvm_deploy.records.code import NO_CODE, EmittedCode
from utvm_deploy.records.known import (
    DEFAULT,
    NEAREST,
    ORIGINS,
    RECORD,
    Records,
    frugal,
)
from utvm_deploy.records.line import parsed, read_records
from utvm_deploy.records.record import (
    ERRORS,
    SCHEMA,
    UNITS,
    KernelIdentity,
    Measurement,
    Record,
    Scale,
    Setting,
    is_modelled,
    now,
)
from utvm_deploy.records.whole import WHOLE_SCHEMA, WholeRecord

__all__ = [
    "DEFAULT",
    "ERRORS",
    "NEAREST",
    "NO_CODE",
    "ORIGINS",
    "RECORD",
    "SCHEMA",
    "UNITS",
    "WHOLE_SCHEMA",
    "EmittedCode",
    "KernelIdentity",
    "Measurement",
    "Record",
    "Records",
    "Scale",
    "Setting",
    "WholeRecord",
    "frugal",
    "is_modelled",
    "now",
    "parsed",
    "read_records",
]

"""Records: measurements, one JSON object a line in a file that only grows.

    kernel + setting (core, compiler, version, unit, cycle model) + candidate  ->  measurement
    whole model + setting + board + a candidate of each kernel                 ->  measurement

``tune`` writes them (``tuning/records_file.py``), the compiler reads them. Unknown fields, of later
versions, are ignored. ``kernels`` knows the meaning of a candidate.
"""

from utvm_deploy.records.emitted_code import NO_CODE, EmittedCode
from utvm_deploy.records.known import DEFAULT, NEAREST, ORIGINS, RECORD, Records, frugal
from utvm_deploy.records.line import parsed, read_records
from utvm_deploy.records.model_record import MODEL_SCHEMA, ModelRecord
from utvm_deploy.records.record import (
    ERRORS,
    SCHEMA,
    SLOWER,
    UNITS,
    KernelIdentity,
    Measurement,
    Record,
    Scale,
    Setting,
    is_modelled,
    now,
)

__all__ = [
    "DEFAULT",
    "ERRORS",
    "MODEL_SCHEMA",
    "NEAREST",
    "NO_CODE",
    "ORIGINS",
    "RECORD",
    "SCHEMA",
    "SLOWER",
    "UNITS",
    "EmittedCode",
    "KernelIdentity",
    "Measurement",
    "ModelRecord",
    "Record",
    "Records",
    "Scale",
    "Setting",
    "frugal",
    "is_modelled",
    "now",
    "parsed",
    "read_records",
]

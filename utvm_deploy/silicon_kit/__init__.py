"""For volunteers with a real board: measures models and sequences, and compares with the model.

run        the whole run, saved after each item
models     one model: outputs and layers compared, cycles measured and modelled
sequences  the micro-benchmarks (``cases``) as a module in RAM
report     the file that it writes, and its strict reader
"""

from utvm_deploy.silicon_kit.models import ModelFile, compile_for
from utvm_deploy.silicon_kit.origin import Place
from utvm_deploy.silicon_kit.report import SCHEMA, Report, read_report
from utvm_deploy.silicon_kit.run import (
    Wanted,
    cases_named,
    check_ready,
    measure,
    models_in,
    shipped_models,
)

__all__ = [
    "SCHEMA",
    "ModelFile",
    "Place",
    "Report",
    "Wanted",
    "cases_named",
    "check_ready",
    "compile_for",
    "measure",
    "models_in",
    "read_report",
    "shipped_models",
]

"""The verbs of the command line. Imports nothing, for what only needs their names."""

from __future__ import annotations

#: Each verb and the module of this package with its arguments and its work.
VERBS = {
    verb: f"{verb}_verb"
    for verb in (
        "boards",
        "models",
        "doctor",
        "inspect",
        "convert",
        "quantize",
        "compile",
        "project",
        "run",
        "tune",
        "report",
        "reproduce",
        "verify",
        "eval",
        "profile",
        "memory",
        "bench",
        "bundle",
        "silicon",
        "history",
        "compare",
        "serve",
        "submit",
        "jobs",
        "fetch",
        "worker",
        "completion",
        "init",
        "docs",
    )
}

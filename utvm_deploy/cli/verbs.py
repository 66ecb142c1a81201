"""The verbs of the command line. Imports nothing, for what only needs their names."""

from __future__ import annotations

#: Each verb, in the order of the help, and the package with its module.
_ROOMS = {
    "boards": "board_verbs",
    "models": "model_verbs",
    "doctor": "setup_verbs",
    "inspect": "model_verbs",
    "convert": "model_verbs",
    "quantize": "model_verbs",
    "compile": "model_verbs",
    "project": "model_verbs",
    "run": "board_verbs",
    "tune": "board_verbs",
    "report": "result_verbs",
    "reproduce": "result_verbs",
    "verify": "board_verbs",
    "eval": "result_verbs",
    "profile": "board_verbs",
    "memory": "model_verbs",
    "bench": "board_verbs",
    "bundle": "model_verbs",
    "silicon": "board_verbs",
    "history": "result_verbs",
    "compare": "result_verbs",
    "serve": "server_verbs",
    "submit": "server_verbs",
    "jobs": "server_verbs",
    "fetch": "server_verbs",
    "worker": "server_verbs",
    "completion": "setup_verbs",
    "init": "setup_verbs",
    "docs": "setup_verbs",
}
#: Each verb and the module of this package with its arguments and its work.
VERBS = {verb: f"{room}.{verb}_verb" for verb, room in _ROOMS.items()}

"""Answers a shell that asks what can follow on its line (`utvm completion`)."""

from __future__ import annotations

import argparse
import os

import argcomplete

from utvm_deploy.cli.parser import fill
from utvm_deploy.cli.verbs import VERBS


def complete() -> None:
    """Write what can follow the line of ``COMP_LINE`` where the shell reads it, and end."""
    words = os.environ.get("COMP_LINE", "")[: _point()].split()
    parser = argparse.ArgumentParser(prog="utvm")
    fill(parser, words[1] if len(words) > 1 and words[1] in VERBS else "")
    argcomplete.autocomplete(parser)


def _point() -> int:
    text = os.environ.get("COMP_POINT", "")
    return int(text) if text.isdigit() else len(os.environ.get("COMP_LINE", ""))

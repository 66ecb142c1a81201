"""Parses the command line, runs the verb and turns errors into one sentence and an exit code.

0: done. 1: the work failed. 2: the command line was wrong. 130: interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from utvm_deploy import __version__
from utvm_deploy.base import process
from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.base.readable import readable
from utvm_deploy.base.toml_table import did_you_mean
from utvm_deploy.cli.entry import EXIT_INTERRUPTED, EXIT_USAGE, loaded, lost_stdout
from utvm_deploy.cli.keep_run import keep_run, model_digests
from utvm_deploy.cli.options.kinds import stream_of_options
from utvm_deploy.cli.options.option import named
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.parser import as_flags, collect, fill
from utvm_deploy.cli.project_file import read_settings, set_defaults, used
from utvm_deploy.cli.verbs import VERBS
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.files.image_input import ImageInput, image_of_words
from utvm_deploy.frontend.training.stored import TrainedWeights
from utvm_deploy.graph.number_formats import format_of

#: How argparse names a wrong choice; Python 3.12 and later quote no choices.
_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)$")
_QUOTED = re.compile(r"[^\s,']+")
#: No option begins with a digit.
_NEGATIVE = re.compile(r"-\.?\d")


def _image(args: argparse.Namespace) -> ImageInput | None:
    """The image of --input, which gives files to `utvm run`, too."""
    given = getattr(args, "image_input", None)
    words = [one for one in given if isinstance(one, str)] if isinstance(given, list) else [given]
    if len(words) > 1:
        raise UsageError("--input has two texts that describe an image; give one")
    return image_of_words(words[0]) if words else None


def _chosen(args: argparse.Namespace) -> Chosen:
    """What the options choose of a model; a file that registers a number format is run once."""
    own, weights = getattr(args, "number_format", None), getattr(args, "weights", None)
    return Chosen(
        getattr(args, "inputs", {}),
        getattr(args, "signature", None),
        tuple(dict(getattr(args, "states", {})).items()),
        stream_of_options(args),
        _image(args),
        None if own is None else format_of(own),
        None if weights is None else TrainedWeights.read(weights),
    )


class Parser(argparse.ArgumentParser):
    """Leaves it to ``reported`` to say what is wrong with a command line."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError, with the nearest choice, and where to read what would be right."""
        found = _CHOICE.search(message)
        hint = did_you_mean(found[1], _QUOTED.findall(found[2])) if found else ""
        raise UsageError(message + _see(hint, self.prog))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """After --help or --version, which argparse prints, and never says that it could not."""
        sys.exit(reported(lambda: status, Output()))


def _see(hint: str, command: str) -> str:
    return f"{hint} (see {command} --help)" if hint else f"; see {command} --help"


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole command line, or the part for one verb; with "" only the names of the verbs."""
    parser = Parser(
        prog="utvm",
        description="neural networks on microcontrollers: a model and a board in, "
        "bit-exact firmware out.",
    )
    parser.add_argument("--version", action="version", version=f"utvm {__version__}")
    fill(parser, only)
    return parser


def check_options(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Refuse options that the verb does not have, with the nearest that it has.

    argparse names them last, and of a required option first that was only misspelt. Raises
    UsageError.
    """
    known = set(_options(parser))
    for word in argv[: argv.index("--") if "--" in argv else None]:
        option = word.partition("=")[0]
        if not option.startswith("--") or any(one.startswith(option) for one in known):
            continue
        verb = f"utvm {argv[0]}"
        raise UsageError(f"{verb} has no option {option}{_see(did_you_mean(option, known), verb)}")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _options(below)


def _verb_of(argv: Sequence[str]) -> str:
    """The verb that ``argv`` begins with; nothing where an option does. Raises UsageError."""
    if not argv or argv[0].startswith("-"):
        return ""
    if argv[0] not in VERBS:
        raise UsageError(f"no verb {argv[0]!r}{_see(did_you_mean(argv[0], VERBS), 'utvm')}")
    return argv[0]


def with_negative_values(argv: Sequence[str]) -> list[str]:
    """The command line with ``--option -1,1`` as ``--option=-1,1``.

    argparse takes ``-1`` for a value, but ``-1,1`` for an unknown option.
    """
    joined: list[str] = []
    for place, word in enumerate(argv):
        before = joined[-1] if joined else ""
        if before == "--":
            return [*joined, *argv[place:]]
        if _NEGATIVE.match(word) and before.startswith("--") and "=" not in before:
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def _parsed(argv: Sequence[str]) -> tuple[argparse.Namespace, str]:
    """The arguments, and which of them utvm.toml says. Raises UtvmError."""
    verb = _verb_of(argv)
    parser = build_parser(verb)
    if verb:
        check_options(parser, argv)
    settings = read_settings() if verb and VERBS[verb].reads_file else None
    defaults = set_defaults(_parser_of(parser, verb), settings, argv) if settings else []
    args = parser.parse_args(argv)
    told = used(args, defaults)
    collect(args)
    # Here, before Ctrl-C becomes an exception: its modules are loaded.
    args.run = named(args.work)
    return args, told


def _parser_of(parser: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found: argparse.ArgumentParser = action.choices[verb]
            return found
    raise AssertionError("no verbs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = with_negative_values(sys.argv[1:] if argv is None else argv)
    args, from_file = argparse.Namespace(), ""

    def parse() -> int:
        nonlocal args, from_file
        args, from_file = _parsed(given)
        return 0

    code = reported(parse, Output(as_json="--json" in given))
    if code:
        return code
    loaded()
    _set_up_logging(args.verbosity)
    out = Output(as_json=args.json)
    if from_file:
        out.note(from_file)

    def work() -> int:
        with contextlib.ExitStack() as stack:
            if args.dry_run:
                stack.enter_context(process.dry_run(lambda command: out.line(shlex.join(command))))
            stack.enter_context(given_only(_chosen(args)))
            started, begin = time.time(), time.monotonic()
            is_kept = getattr(args, "store", False) and not args.dry_run
            digests = model_digests(args) if is_kept else {}
            if getattr(args, "emulate", False):
                from utvm_deploy.cli.arguments import twin_note  # which its verb has loaded

                out.note(twin_note(args))
            try:
                code = int(args.run(args, out))
            except UsageError as error:
                raise UsageError(as_flags(str(error), args.row.rows)) from error.__cause__
            if is_kept:
                keep_run(args, out, digests, code, started, time.monotonic() - begin)
            return code

    return reported(work, out, verbose=args.verbosity > 0)


def reported(work: Callable[[], int], out: Output, *, verbose: bool = False) -> int:
    """Do ``work``; what goes wrong becomes one sentence on ``out`` and an exit code."""
    failure: OSError | None = None
    try:
        code = work()
    except UtvmError as error:
        out.error(type(error).__name__, str(error))
        if verbose and error.__cause__ is not None:
            out.note(f"caused by {type(error.__cause__).__name__}: {error.__cause__}")
        code = EXIT_USAGE if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as interrupt:
        # A verb may say what is kept.
        out.note("; ".join(("interrupted", *map(str, interrupt.args))))
        code = EXIT_INTERRUPTED
    except OSError as error:
        failure, code = error, 1
    lost = lost_stdout()
    if isinstance(lost, BrokenPipeError):
        # The reader of our stdout went away (a pager was closed): nothing is wrong, nothing to say.
        return code or 1
    if lost is not None:
        out.error(
            type(lost).__name__,
            f"the result cannot be written to stdout: {lost.strerror}; send it to a file or a "
            "pipe that takes it",
        )
        return code or 1
    if failure is not None:
        # A full disk, a folder without rights: met anywhere, and no bug.
        out.error(type(failure).__name__, _system_refused(failure))
        if verbose:
            raise failure
    return code


def _system_refused(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename is not None else ""
    told = f"the system refused: {where}{error.strerror or error}"
    if where and error.errno == errno.ENOSPC:
        is_temporary = error.filename == tempfile.gettempdir()
        other = ", or set TMPDIR to another folder" if is_temporary else ""
        told += f"; make room there{other}"
    return told


class _WarningsOnce(logging.Filter):
    """Lets a warning through once: a verb may import the same model several times."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        message = record.getMessage()
        is_new = message not in self._told
        self._told.add(message)
        return is_new


class _Readable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return readable(super().format(record))


def _set_up_logging(verbosity: int) -> None:
    handler = logging.StreamHandler()
    told = "%(relativeCreated)7d ms  %(message)s" if verbosity else "warning: %(message)s"
    handler.setFormatter(_Readable(told))
    handler.addFilter(_WarningsOnce())
    root = logging.getLogger("utvm_deploy")
    root.handlers[:] = [handler]
    root.setLevel([logging.WARNING, logging.INFO, logging.DEBUG][min(verbosity, 2)])
    logging.getLogger("utvm_deploy.device.link").setLevel(
        logging.DEBUG if verbosity >= 3 else logging.WARNING
    )

"""utvm run --prompt: a language model writes on a board."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from utvm_deploy.base.errors import ModelError, UsageError
from utvm_deploy.boards.board import Board
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import compile_step, device_of, dry_run_step
from utvm_deploy.device.link.base import Hello
from utvm_deploy.device.writing import Sampler, Step, check_writer, write
from utvm_deploy.frontend.formats import check_readable
from utvm_deploy.frontend.tflite_tables import metadata_of
from utvm_deploy.frontend.vocabulary import VOCABULARY, Vocabulary

_SAMPLING = ("temperature", "top_k", "seed")


def check_options(args: argparse.Namespace) -> None:
    """UsageError for options of text without a prompt, and for a prompt with others."""
    if args.prompt is None:
        for name in ("vocabulary", "tokens", *_SAMPLING):
            if getattr(args, name) is not None:
                raise UsageError(f"--{name.replace('_', '-')} is for a text; give --prompt with it")
    elif args.image_input or args.output or args.float64:
        raise UsageError("--prompt goes without --input, --output and --float64; leave these out")


def write_text(args: argparse.Namespace, board: Board, out: Output) -> int:
    """Print the text as the board writes it, and what it took."""
    vocabulary = _vocabulary(args)
    begin = vocabulary.begin(args.prompt)
    given = {name: getattr(args, name) for name in _SAMPLING}
    sampler = Sampler(**{name: value for name, value in given.items() if value is not None})
    with ExitStack() as kept:
        with out.progress() as progress:
            compiled = compile_step(args, board, progress)
            check_writer(compiled, vocabulary)
            if args.dry_run:
                return dry_run_step(args, board, compiled)
            progress(f"building the image and starting {board.name}", 0, 1)
            device = kept.enter_context(device_of(args, board))
            model = device.load(compiled)
        out.part(args.prompt)
        steps: list[Step] = []
        # Each token of the prompt takes a run, and the last one writes the first token.
        count, most = 0, None if args.tokens is None else args.tokens + len(begin) - 1
        try:
            for step in write(model, vocabulary, begin, sampler):
                steps.append(step)
                count += step.tokens
                if count >= len(begin) and step.following != vocabulary.end:
                    out.part(vocabulary.pieces[step.following])
                if count == most:
                    break
        except KeyboardInterrupt:
            out.line()
            raise KeyboardInterrupt(f"after {count} tokens") from None
        hello, is_modelled = model.device.hello, model.device.is_modelled
    out.line()
    written = count - len(begin)
    tokens = [step.following for step in steps[len(steps) - written - 1 :]]
    ticks = sum(step.ticks for step in steps)
    modelled = "modelled " if is_modelled else ""
    of_writing = sum(step.ticks for step in steps[len(steps) - written :])
    parts = [(len(begin), "of the prompt", ticks - of_writing), (written, "written", of_writing)]
    told = ", ".join(
        f"{number} {what}{_speed(number, taken, hello)}" for number, what, taken in parts if number
    )
    out.line(f"{count} tokens in {ticks:,} {modelled}{hello.tick_unit} on {board.name}:\n  {told}")
    if tokens[-1] != vocabulary.end and count == vocabulary.length:
        out.line(f"the text ends here: the model's cache holds {vocabulary.length} tokens")
    out.result(
        "utvm.run/1",
        {
            **run_facts(board.name, compiled.name, ticks, hello, is_modelled),
            "prompt_ticks": ticks - of_writing,
            "prompt": args.prompt,
            "text": "".join(vocabulary.pieces[one] for one in tokens if one != vocabulary.end),
            "tokens": tokens,
        },
    )
    return 0


def run_facts(
    board: str, model: str, ticks: int, hello: Hello, is_modelled: bool
) -> dict[str, object]:
    """What the JSON of each run says first."""
    return {
        "board": board,
        "model": model,
        "ticks": ticks,
        "tick_unit": hello.tick_unit,
        "ticks_per_second": hello.ticks_per_second,
        "is_modelled": is_modelled,
    }


def _vocabulary(args: argparse.Namespace) -> Vocabulary:
    """That of --vocabulary, else of the model's file."""
    if args.vocabulary is not None:
        return Vocabulary.of_json(args.vocabulary.read_bytes())
    found = None
    if args.model.suffix == ".tflite":
        check_readable(args.model)
        found = metadata_of(args.model.read_bytes(), VOCABULARY)
    if found is None:
        raise ModelError(
            f"{args.model} has no vocabulary, so there is no text for --prompt; give --vocabulary "
            "FILE.json, or a model that writes (utvm models)"
        )
    return Vocabulary.of_json(found)


def _speed(tokens: int, ticks: int, hello: Hello) -> str:
    """In ticks a token if these are not time."""
    if hello.tick_unit == "instructions":
        return f" ({ticks // tokens:,} a token)"
    clock = hello.ticks_per_second
    rate = f" at {clock / 1e6:g} MHz" if hello.tick_unit == "cycles" else ""
    return f" ({tokens * clock / max(ticks, 1):,.0f} a second{rate})"

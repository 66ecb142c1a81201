"""The rows of verbs that jobs run."""

from __future__ import annotations

import pytest

from utvm_deploy.base.errors import UsageError
from utvm_deploy.bundling.layout import FORMATS
from utvm_deploy.bundling.mlperf_tiny import BENCHMARKS
from utvm_deploy.cli.main import build_parser
from utvm_deploy.cli.options.option import rows_in
from utvm_deploy.cli.verbs import VERBS as CLI_VERBS
from utvm_deploy.service.server.jobs.options import BENCHMARK, FORMAT, Option, time_limit_s
from utvm_deploy.service.server.jobs.verbs import VERBS, Verb, command_line, file_names, verb_of
from utvm_deploy.service.server.store.facts import Model

DIGEST = "0123456789abcdef" * 4
JOB = "0123456789ab"
ROWS = [(verb, option) for verb in VERBS.values() for option in verb.options]
#: A text of each pattern is needed, which no range gives.
TEXTS = {"name": "speech_2", "shape": "x=1,64", "signature": "main", "input": "rgb565 8x8 crop"}
TEXTS |= {"layers": "last", "rate": "0.05"}


def values(option: Option) -> list[object]:
    """The extremes that an option takes."""
    match option.kind:
        case "flag":
            return [True, False]
        case "choice":
            return list(option.choices)
        case "file":
            return [DIGEST, *([JOB] if option.member else [])]
        case "text":
            return [TEXTS[option.name]]
    return [option.least, option.most]


def complete(verb: Verb, option: Option) -> dict[str, object]:
    """The other options that an option needs."""
    more = [group[0] for group in verb.needed if option not in group]
    more += [other for one, other in verb.bound if one == option]
    return {one.name: values(one)[0] for one in more}


@pytest.mark.parametrize(
    ("verb", "option"), ROWS, ids=[f"{verb.name}-{option.name}" for verb, option in ROWS]
)
def test_the_real_parser_takes_each_option(verb: Verb, option: Option) -> None:
    for value in values(option):
        options = {**complete(verb, option), option.name: value}
        argv = command_line(verb, ["kws.tflite"], "host", options)
        args = build_parser(verb.name).parse_args(argv)
        if option.is_argument:
            (row,) = (one for one in rows_in(CLI_VERBS[verb.name].rows) if one.name == option.name)
            taken = getattr(args, row.attribute)
            taken = taken != row.nothing if row.is_alone else taken
            if row.is_repeated:
                assert len(taken) == 1
                continue
            # Some integers are numbers with a point to the verb.
            as_text = f"{taken:g}" if isinstance(taken, float) else str(taken)
            assert as_text == (option.file or str(value))


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_the_real_parser_takes_the_most_models_and_the_outputs(verb: Verb) -> None:
    names = [f"-m{n}.tflite" for n in range(verb.most_models)]
    options = {group[0].name: values(group[0])[0] for group in verb.needed}
    args = build_parser(verb.name).parse_args(command_line(verb, names, "host", options))
    models = args.models if hasattr(args, "models") else [args.model]
    # The files are named, although their names look like options.
    assert [path.name for path in models] == names
    assert args.json
    assert {str(value) for value in vars(args).values()} >= set(verb.outputs)


@pytest.mark.parametrize(
    ("verb", "options", "said"),
    [
        ("tune", {}, "a tune job needs trials or minutes"),
        ("tune", {"trials": 0}, "trials: 0 is not from 1 to 1000000"),
        ("tune", {"trials": True}, "trials: True is not an integer"),
        ("tune", {"trials": "5"}, "trials: '5' is not an integer"),
        ("compile", {"optimize": "--dump"}, "optimize: '--dump' is not one of time"),
        ("compile", {"optimize": ["time"]}, "is not one of time"),
        ("compile", {"name": "a b"}, "name: 'a b' is not a text of the form"),
        ("compile", {"records": "../../etc/passwd"}, "is not the SHA-256 of a stored file"),
        ("compile", {"dump": "all"}, "compile has no option 'dump' in a job; it has optimize"),
        ("compile", {"shape": "--dump"}, "shape: '--dump' is not a text of the form"),
        ("compile", {"input": "uint8; ls"}, "input: 'uint8; ls' is not a text of the form"),
        ("bundle", {"no-latency": 1}, "no-latency: 1 is not true or false"),
        ("verify", {"samples": 2, "golden": DIGEST}, "samples and golden exclude each other"),
        ("verify", {"golden": JOB}, "golden: '0123456789ab' is not the SHA-256 of a stored file"),
        ("train", {}, "a train job needs data"),
        ("train", {"data": DIGEST, "rate": "-1"}, "rate: '-1' is not a text of the form"),
        ("train", {"data": DIGEST, "layers": "a b"}, "layers: 'a b' is not a text of the form"),
        ("profile", {"fail-over": 3}, "fail-over means nothing without baseline"),
        ("verify", {"name": "x" * 5000}, "…"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_right(
    verb: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        command_line(verb_of(verb), ["kws.tflite"], "host", options)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 300


def test_the_number_of_models_is_limited() -> None:
    for count, verb in ((0, "inspect"), (2, "compile"), (17, "tune")):
        with pytest.raises(UsageError, match=f"not {count}"):
            command_line(verb_of(verb), ["m.tflite"] * count, "host", {"trials": 1})


def test_an_unknown_verb_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no job runs 'run'; jobs run inspect, compile"):
        verb_of("run")


def test_models_of_one_name_get_files_of_their_own() -> None:
    models = [Model(digit * 64, "kws.tflite", 1, 0.0) for digit in "ab"]
    assert file_names(models) == ["kws.tflite", "kws-bbbbbbbb.tflite"]


def test_a_long_tuning_is_not_ended_by_the_default_time_limit() -> None:
    hour = 3600.0
    assert time_limit_s({}) == time_limit_s({"minutes": 5}) == 6 * hour
    assert time_limit_s({"minutes": 6000}) == 101 * hour
    assert time_limit_s({"minutes": 6000, "time-limit": 60}) == hour


def test_a_job_makes_every_form_of_a_bundle() -> None:
    assert set(FORMAT.choices) == set(FORMATS) and set(BENCHMARK.choices) == set(BENCHMARKS)

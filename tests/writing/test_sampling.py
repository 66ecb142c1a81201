"""Tokens and the choice of the next one: the C of examples/writer equals the host's Python."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bigrams import LENGTH, PIECES, WORDS

from utvm_deploy.base.errors import ModelError, UsageError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.device.writing import Sampler
from utvm_deploy.frontend.vocabulary import Vocabulary
from utvm_deploy.graph.model import Array

TEXT_C = data_dir("templates").parent / "examples" / "writer" / "text.c"


class CSampler(ctypes.Structure):
    _fields_ = (
        ("temperature", ctypes.c_float),
        ("top_k", ctypes.c_uint16),
        ("state", ctypes.c_uint32),
    )


class CVocabulary(ctypes.Structure):
    _fields_ = (
        ("pieces", ctypes.POINTER(ctypes.c_char_p)),
        ("count", ctypes.c_uint16),
        ("end", ctypes.c_uint16),
        ("length", ctypes.c_uint16),
    )


@pytest.fixture(scope="module")
def text_c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("text") / "text.so"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, TEXT_C, "-o", library], check=True, timeout=60)
    return ctypes.CDLL(str(library))


def chosen_by_c(text_c: ctypes.CDLL, sampler: CSampler, scores: Array, scale: float) -> int:
    below = (ctypes.c_uint16 * scores.size)()
    raw: Any = scores.ctypes.data
    if scores.dtype == np.int8:
        return int(
            text_c.text_choose_int8(
                ctypes.byref(sampler),
                ctypes.c_void_p(raw),
                ctypes.c_float(scale),
                below,
                ctypes.c_uint16(scores.size),
            )
        )
    return int(
        text_c.text_choose_float(
            ctypes.byref(sampler), ctypes.c_void_p(raw), below, ctypes.c_uint16(scores.size)
        )
    )


def int8_scores(rng: np.random.Generator, count: int) -> Array:
    return rng.integers(-128, 128, count, np.int8)


def few_scores(rng: np.random.Generator, count: int) -> Array:
    return rng.integers(-2, 3, count, np.int8)  # with many equals


def float_scores(rng: np.random.Generator, count: int) -> Array:
    return rng.normal(0, 10 ** rng.uniform(-3, 6), count).astype(np.float32)


@pytest.mark.parametrize("draw", [int8_scores, few_scores, float_scores])
def test_c_and_python_choose_the_same(
    text_c: ctypes.CDLL, draw: Callable[[np.random.Generator, int], Array]
) -> None:
    rng = np.random.default_rng(20264)
    for _ in range(150):
        count, seed = int(rng.integers(1, 400)), int(rng.integers(0, 2**31))
        temperature = float(rng.choice([0, 0.01, 0.3, 0.8, 1, 2.7, 100]))
        top_k = int(rng.choice([0, 1, 2, 7, 40, 500]))
        scale = float(np.float32(10 ** rng.uniform(-4, 1)))
        ours = Sampler(temperature, top_k, seed)
        theirs = CSampler(temperature, top_k, seed)
        for _ in range(8):
            scores = draw(rng, count)
            real_scale = scale if scores.dtype == np.int8 else 1.0
            expected = chosen_by_c(text_c, theirs, scores, real_scale)
            assert ours.choose(scores, real_scale) == expected


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_scores_that_are_not_finite_still_choose_a_token(
    text_c: ctypes.CDLL, temperature: float
) -> None:
    rng = np.random.default_rng(20266)
    for number in range(300):
        scores = rng.choice([np.nan, np.inf, -np.inf, 1.0, 3e38, -3e38], 5).astype(np.float32)
        ours, theirs = Sampler(temperature, 0, number), CSampler(temperature, 0, number)
        found = ours.choose(scores)
        assert found == chosen_by_c(text_c, theirs, scores, 1.0)
        assert 0 <= found < 5
        if temperature == 0 and not np.isnan(scores).all():
            assert scores[found] == np.nanmax(scores)
    for scale in (1e-38, 1e38):
        some = int8_scores(rng, 9)
        ours, theirs = Sampler(temperature, 0, 1), CSampler(temperature, 0, 1)
        assert ours.choose(some, scale) == chosen_by_c(text_c, theirs, some, scale)


def test_tokens_are_drawn_by_their_probability() -> None:
    scores = np.array([3.0, 2.0, 0.0, 2.5, -1.0], np.float32)
    sampler = Sampler(temperature=0.7, top_k=4, seed=5)
    counts = np.bincount([sampler.choose(scores) for _ in range(40_000)], minlength=5)
    wanted = np.exp(scores / 0.7)
    wanted[4] = 0
    assert np.abs(counts / 40_000 - wanted / wanted.sum()).max() < 0.01


def test_temperature_0_takes_the_first_of_the_best() -> None:
    assert Sampler(temperature=0).choose(np.array([1, 9, 9, 2], np.int8), 0.1) == 1


def test_c_and_python_cut_a_text_alike(text_c: ctypes.CDLL) -> None:
    pieces = (ctypes.c_char_p * len(PIECES))(*(one.encode() for one in PIECES))
    vocabulary = CVocabulary(pieces, len(PIECES), 0, LENGTH)
    rng = np.random.default_rng(20265)
    tokens = (ctypes.c_uint16 * 100)()
    for _ in range(300):
        text = "".join(rng.choice(list("abc é"), rng.integers(0, 30)))
        count = text_c.text_encode(ctypes.byref(vocabulary), text.encode(), tokens, 100)
        assert list(tokens[:count]) == WORDS.encode(text)
        assert "".join(PIECES[token] for token in tokens[:count]) == text
    for text, most, wanted in (("abx", 100, -1), ("a\n", 100, -1), ("aaa", 2, -2), ("aaa", 3, 3)):
        assert text_c.text_encode(ctypes.byref(vocabulary), text.encode(), tokens, most) == wanted


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("abX", "the prompt has 'X', which is not in the model's vocabulary"),
        ("ab\n", r"the prompt has '\\n', which is not in"),
        (b"ab\xff".decode(errors="surrogateescape"), "the prompt is not UTF-8"),
        ("c" * 12, "the prompt has 12 tokens, and the model's cache holds 11 of a prompt"),
    ],
)
def test_a_prompt_that_no_model_takes(prompt: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        WORDS.begin(prompt)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"pieces": ["a"], "end": 0, "length": 3}',
        '{"pieces": ["a", "a"], "end": 0, "length": 3}',
        '{"pieces": ["a", ""], "end": 0, "length": 3}',
        '{"pieces": ["a", [1]], "end": 0, "length": 3}',
        '{"pieces": ["a", "\\u0000"], "end": 0, "length": 3}',
        '{"pieces": ["a", "\\ud800"], "end": 0, "length": 3}',
        '{"pieces": ["a", "b"], "end": 2, "length": 3}',
        '{"pieces": ["a", "b"], "end": 0, "length": 65536}',
        '{"pieces": ["a", "b"], "end": 0, "length": true}',
        '{"pieces": 5, "end": 0, "length": 3}',
        b'{"pieces": ["\xff", "b"], "end": 0, "length": 3}',
    ],
)
def test_a_damaged_vocabulary_is_told(text: str | bytes) -> None:
    with pytest.raises(ModelError, match="the vocabulary is damaged"):
        Vocabulary.of_json(text)


def test_a_vocabulary_is_what_was_written() -> None:
    assert Vocabulary.of_json(WORDS.to_json()) == WORDS


@pytest.mark.parametrize("options", [{"temperature": 0.001}, {"temperature": 101}, {"top_k": -1}])
def test_sampling_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"give a temperature of 0, or of 0\.01 to 100"):
        Sampler(**options)

"""The vocabulary of a language model: pieces of text, and how a text becomes tokens."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property

from utvm_deploy.base.errors import ModelError, UsageError
from utvm_deploy.base.readable import is_c_text

#: The name of the metadata that a file of a language model has.
VOCABULARY = "utvm_vocabulary"
#: C has the numbers of tokens and of positions in 16 bits.
_MOST = 65_535


@dataclass(frozen=True)
class Vocabulary:
    """Token n is the text ``pieces[n]``. A text begins and ends with the token ``end``."""

    pieces: tuple[str, ...]
    end: int
    length: int  # the tokens that a text may have: the positions of the cache

    @classmethod
    def of_json(cls, text: str | bytes) -> Vocabulary:
        """What ``to_json`` wrote; ModelError for other texts."""
        try:
            found = json.loads(text)
            made = cls(tuple(found["pieces"]), found["end"], found["length"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(
                'the vocabulary is damaged: it is JSON, {"pieces": [...], "end": 0, "length": 64}'
            ) from error
        pieces = made.pieces
        if not all(isinstance(one, str) and one and is_c_text(one) for one in pieces):
            raise ModelError(
                "the vocabulary is damaged: its pieces are texts in UTF-8; none is empty, and none "
                "has a zero byte"
            )
        if not 2 <= len(set(pieces)) == len(pieces) <= _MOST:
            raise ModelError(f"the vocabulary is damaged: it needs 2 to {_MOST:,} different pieces")
        if any(type(one) is not int for one in (made.end, made.length)):
            raise ModelError("the vocabulary is damaged: end and length are integers")
        if not (0 <= made.end < len(pieces) and 0 < made.length <= _MOST):
            raise ModelError(
                f"the vocabulary is damaged: end is {made.end!r:.20} of {len(pieces)} pieces, and "
                f"length is {made.length!r:.20} of at most {_MOST:,}"
            )
        return made

    def to_json(self) -> str:
        """As a file holds it."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.pieces)}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.pieces))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text: at each place, the longest piece that is there.

        Raises UsageError for a text that is not UTF-8, and for what no piece begins with.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError("the prompt is not UTF-8; give text in this encoding") from None
        tokens, at = [], 0
        while at < len(text):
            for size in range(min(self._longest, len(text) - at), 0, -1):
                token = self._numbers.get(text[at : at + size])
                if token is not None and token != self.end:
                    break
            else:
                known = sorted(one for one in self.pieces if len(one) == 1 and one.isprintable())
                raise UsageError(
                    f"the prompt has {text[at]!r}, which is not in the model's vocabulary; its "
                    f"characters are {''.join(known)[:100]!r}"
                )
            tokens.append(token)
            at += size
        return tokens

    def begin(self, prompt: str) -> list[int]:
        """The tokens that a text with this prompt begins with; raises UsageError as ``encode``."""
        tokens = [self.end, *self.encode(prompt)]
        if len(tokens) > self.length:
            raise UsageError(
                f"the prompt has {len(tokens) - 1} tokens, and the model's cache holds "
                f"{self.length - 1} of a prompt; give a shorter one"
            )
        return tokens

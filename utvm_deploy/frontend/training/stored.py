"""Trained weights: as the bytes of ``NAME_store``, and as the file that ``--weights`` names."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.files import check_regular, write_text
from utvm_deploy.frontend.training.recipe import Recipe, check_recipe
from utvm_deploy.graph.model import Array

#: The first bytes of stored weights.
MAGIC = b"utvmW1\0\0"
#: Bytes of the header: magic, digest of the model, bytes in all, CRC-32 of what follows.
HEADER = struct.Struct("<8s16sII")
_FORMAT = "utvm.weights/1"


def digest_of(model: str, names: Sequence[str]) -> str:
    """The digest of a model and of the weights that train; ``model`` is its digest, or its text."""
    return hashlib.sha256("\0".join([model, *names]).encode()).hexdigest()


def check_stored(stored: bytes, digest: str, name: str, size: int) -> None:
    """Raise ModelError unless these are whole weights of a model; ``name`` is for messages."""
    start = MAGIC + bytes.fromhex(digest)[:16]
    if stored[: len(start)] != start:
        raise ModelError(f"these are not weights of {name}; give those that it has stored")
    if stored[len(start) : HEADER.size] != struct.pack("<II", size, zlib.crc32(stored[32:])):
        raise ModelError(f"the weights of {name} are damaged; restore another copy of them")


@dataclass(frozen=True)
class TrainedWeights:
    """What a model learned, and how it was made trainable."""

    recipe: Recipe
    #: Of each weight the name, the shape, and its first byte in ``stored``.
    parts: tuple[tuple[str, tuple[int, ...], int], ...]
    stored: bytes  # as ``NAME_store`` gives them

    @classmethod
    def read(cls, path: str | Path) -> TrainedWeights:
        """Those of a file. Raises ModelError if it is damaged, or has something else."""
        try:
            check_regular(Path(path))
            return cls.of_text(Path(path).read_text("utf-8"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            told = getattr(error, "strerror", None) or "it is damaged, or another file"
            raise ModelError(
                f"cannot read the weights {path}: {told}; give a file that utvm train wrote"
            ) from error

    @classmethod
    def of_text(cls, text: str) -> TrainedWeights:
        """Those of the text of a file. Raises ModelError, or other errors for other texts."""
        given = json.loads(text)
        stored = base64.b64decode(given["stored"], validate=True)
        check_stored(stored, stored[8:24].hex(), "this file", len(stored))
        recipe = Recipe(**given["recipe"])
        check_recipe(recipe)
        parts = tuple((str(name), tuple(shape), int(at)) for name, shape, at in given["weights"])
        found = cls(recipe, parts, stored)
        found.arrays()
        return found

    def write(self, path: str | Path) -> None:
        """Write the file, which is then complete, or as it was before."""
        write_text(Path(path), self.text)

    @property
    def text(self) -> str:
        """What the file has."""
        stored = base64.b64encode(self.stored).decode("ascii")
        facts = {"format": _FORMAT, "recipe": asdict(self.recipe)}
        return json.dumps(facts | {"weights": self.parts, "stored": stored})

    def arrays(self) -> list[Array]:
        """The values of each weight. Raises ValueError for what is not within the bytes."""
        return [
            np.frombuffer(self.stored, "<f4", math.prod(shape), at).reshape(shape)
            for _, shape, at in self.parts
        ]

    def check_of(self, model: str, name: str) -> None:
        """Raise ModelError for those of another model; ``model`` is as for ``digest_of``."""
        self.check_digest(digest_of(model, [name for name, *_ in self.parts]), name)

    def check_digest(self, digest: str, name: str) -> None:
        """Raise ModelError for those of another digest of a model and its weights."""
        if bytes.fromhex(digest)[:16] != self.stored[8:24]:
            raise _of_another(name)


def fitted(array: Array, shape: Sequence[int], name: str) -> Array:
    """Weights as the model ``name`` has them. Raises ModelError for others than it has."""
    if array.size != math.prod(shape):
        raise _of_another(name)
    return array.reshape(shape)


def _of_another(name: str) -> ModelError:
    return ModelError(
        f"the weights are of another model than {name}, or of other layers; give those that were "
        "trained with it"
    )

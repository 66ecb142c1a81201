"""What the caller of a compiled model gives it: an image, in words such as ``rgb565 160x120``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.user_arrays import NCHW, NHWC

#: Two bytes for a pixel: the first has the red, or the second.
RGB565 = ("rgb565", "rgb565le")
_PIXELS = ("uint8", *RGB565)
_RESIZES = ("nearest", "bilinear")
_MOST_SIDE = 4096
_EXAMPLE = "uint8, or rgb565 160x120 crop bilinear mean=0.5 std=0.25"


@dataclass(frozen=True)
class ImageInput:
    """The image that a compiled model takes; what is empty is as the model has it."""

    words: str = ""  # what the user wrote
    pixels: str = ""
    size: tuple[int, int] = (0, 0)  # columns and rows of the frame
    crops: bool = False
    crop: tuple[int, int] = (0, 0)  # columns and rows in its middle
    resize: str = ""
    mean: tuple[float, ...] = ()  # of pixels from 0 to 1
    std: tuple[float, ...] = ()
    order: str = ""

    @property
    def is_normalized(self) -> bool:
        """Whether the user gave a mean or a deviation."""
        return bool(self.mean or self.std)


def image_of_words(text: Any) -> ImageInput | None:
    """What the words of a text mean, None of no text; ModelError says which of them is wrong."""
    try:
        return None if text is None else parsed_image(text)
    except ValueError as error:
        raise ModelError(f"image_input={text!r}: {error}") from None


def parsed_image(text: Any) -> ImageInput:
    """The same; ValueError says what is wrong."""
    if not isinstance(text, str):
        raise ValueError(f"it is not a text, such as '{_EXAMPLE}'")
    made = ImageInput()
    for word in text.split():
        given = _meaning(word)
        for name in given:
            if getattr(made, name) != getattr(ImageInput, name):
                raise ValueError(f"it says {name} twice, the second time with '{word}'")
        made = replace(made, **given)
    if made == ImageInput():
        raise ValueError(f"there are no words; give words such as '{_EXAMPLE}'")
    made = replace(made, words=text)
    if (made.crops or made.resize) and not made.size[0]:
        what = made.resize or "crop"
        raise ValueError(
            f"{what} needs the size of the image that comes, such as 160x120 (columns by rows)"
        )
    if made.is_normalized and not made.pixels:
        raise ValueError("mean and std are of pixels; put uint8 or rgb565 in front of them")
    if made.pixels in RGB565 and made.order == NCHW:
        raise ValueError(f"the pixels of {made.pixels} lie side by side, so nchw does not apply")
    return made


def _meaning(word: str) -> dict[str, Any]:
    """The fields of ImageInput that a word sets."""
    if word in _PIXELS:
        return {"pixels": word}
    if word in _RESIZES:
        return {"resize": word}
    if word in (NHWC, NCHW):
        return {"order": word}
    if word == "crop":
        return {"crops": True}
    name, equals, value = word.partition("=")
    readers: Mapping[str, Callable[[str, str], Any]] = {
        "crop": _sides,
        "mean": _numbers,
        "std": _numbers,
    }
    if equals and name in readers:
        found = {name: readers[name](word, value)}
        return found | ({"crops": True} if name == "crop" else {})
    if re.fullmatch(r"\d+x\d+", word):
        return {"size": _sides(word, word)}
    known = ", ".join((*_PIXELS, *_RESIZES, NHWC, NCHW))
    raise ValueError(
        f"'{word}' is not known; there are {known}, a size such as 160x120, crop, "
        "crop=96x96, mean=0.5 and std=0.25"
    )


def _sides(word: str, text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    columns, rows = (int(one) for one in found.groups()) if found else (0, 0)
    if not (0 < columns <= _MOST_SIDE and 0 < rows <= _MOST_SIDE):
        raise ValueError(f"{word} has no size of 1x1 to {_MOST_SIDE}x{_MOST_SIDE}, columns by rows")
    return columns, rows


def _numbers(word: str, text: str) -> tuple[float, ...]:
    """Numbers for pixels from 0 to 1."""
    name = word.partition("=")[0]
    try:
        values = tuple(float(one) for one in text.split(","))
    except ValueError:
        raise ValueError(f"{word} has no number, or one for each channel") from None
    for value in values:
        if not math.isfinite(value) or abs(value) > 1 or (name == "std" and value <= 0):
            low = "above 0" if name == "std" else "-1"
            raise ValueError(
                f"{word}: pixels count from 0 to 1, so {name} is from {low} to 1; divide "
                "numbers for pixels from 0 to 255 by 255"
            )
    return values

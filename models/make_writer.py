"""Make the files of the writer: train a small language model on WordNet's definitions.

The model is llama-like and has 320,160 parameters. It writes definitions as a dictionary does:
"lantern: a portable light ...". The text is that of Princeton WordNet 3.0 as the Debian package
wordnet-base has it (its licence is in models/README.md). Install it, or unpack it anywhere:

    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb unpacked

The script runs in the venv of the project, with its extra `torch` (training takes about five
minutes of one core):

    python models/make_writer.py --wordnet unpacked/usr/share/wordnet -o FOLDER

FOLDER/writer_float.pt2 is the network in float32, FOLDER/writer.json its vocabulary, and the others
are those of the folder writer. Everything random is seeded.
"""

from __future__ import annotations

import argparse
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

import utvm_deploy
from utvm_deploy.frontend.files import tflite_schema
from utvm_deploy.frontend.vocabulary import VOCABULARY, Vocabulary

HERE = Path(__file__).resolve().parent
SEED = 20262
WIDTH, HEADS, KEY_HEADS, HEAD, HIDDEN, LAYERS = 96, 6, 2, 16, 256, 3
#: Tokens that a text may have: the positions of the cache.
LENGTH = 64
PIECES = 256
ROPE_BASE, NORM_EPSILON = 10000.0, 1e-5
TOKENS_A_BATCH, LEARNING_RATE, WARM_UP_STEPS = 2048, 8e-3, 60
EPOCHS = 3
#: Steps that the ranges are taken from, and held-out texts that perplexities are of.
CALIBRATION_STEPS, JUDGED = 512, 300

#: What begins and ends a text.
END = "\n"
_LINE = re.compile(r"[a-z][a-z '-]{0,19}: [a-z ,'()-]{13,100}")
_WORD = re.compile(r" ?[a-z]+|.")


def definitions(folder: Path) -> list[str]:
    """The lines "word: definition" that have only small letters, in the order of the files."""
    found = []
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{kind}").read_text("latin-1").splitlines():
            head, bar, gloss = line.partition(" | ")
            if bar and not line.startswith(" "):
                word = re.sub(r"\(.*\)", "", head.split()[4]).replace("_", " ")
                text = f"{word}: {gloss.split(';')[0].strip()}"
                if _LINE.fullmatch(text):
                    found.append(text)
    return sorted(set(found))


def learn_pieces(lines: Sequence[str], count: int) -> list[str]:
    """The pieces of a vocabulary: the end, each character, and byte pairs by their frequency."""
    counts = Counter(word for line in lines for word in _WORD.findall(line))
    words = {word: tuple(word) for word in counts}
    pieces = [END, *sorted({letter for word in words for letter in word})]
    pairs: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], set[str]] = {}
    for word, parts in words.items():
        for pair in pairwise(parts):
            pairs[pair] += counts[word]
            where.setdefault(pair, set()).add(word)
    while len(pieces) < count:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        joined = "".join(best)
        if joined not in pieces:
            pieces.append(joined)
        for word in list(where[best]):
            old = words[word]
            new = words[word] = tuple(_joined(old, best))
            for pair in pairwise(old):
                pairs[pair] -= counts[word]
            for pair in pairwise(new):
                pairs[pair] += counts[word]
                where.setdefault(pair, set()).add(word)
        del pairs[best]
    return pieces


def _joined(parts: Sequence[str], pair: tuple[str, str]) -> Iterator[str]:
    at = 0
    while at < len(parts):
        size = 2 if tuple(parts[at : at + 2]) == pair else 1
        yield "".join(parts[at : at + size])
        at += size


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """x divided by its root mean square along the last axis, times the gain."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPSILON) * gain


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE: each pair of values (i, i + HEAD / 2) turned by the angle of the position."""
    low, high = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return x * cos + torch.cat((-high, low), -1) * sin


def angles() -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of RoPE, each (LENGTH, HEAD)."""
    rates = ROPE_BASE ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
    turn = torch.outer(torch.arange(LENGTH, dtype=torch.float64), rates).repeat(1, 2)
    return turn.cos().float(), turn.sin().float()


class Block(nn.Module):
    """Attention with grouped queries, then SwiGLU, each behind RMSNorm and around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.Parameter(torch.ones(WIDTH))
        self.before_mlp = nn.Parameter(torch.ones(WIDTH))
        self.query = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.key = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Of (texts, tokens, WIDTH), the same shape."""
        normal = rms_norm(x, self.before_attention)
        split = (*x.shape[:2], -1, HEAD)
        query = turned(self.query(normal).view(split).transpose(1, 2), cos, sin)
        key = turned(self.key(normal).view(split).transpose(1, 2), cos, sin)
        value = self.value(normal).view(split).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(
            query,
            key.repeat_interleave(HEADS // KEY_HEADS, 1),
            value.repeat_interleave(HEADS // KEY_HEADS, 1),
            is_causal=True,
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(rms_norm(x, self.before_mlp))

    def mlp(self, x: torch.Tensor) -> torch.Tensor:
        """SwiGLU."""
        made: torch.Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return made


class Writer(nn.Module):
    """Scores of each next token, for whole texts."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(PIECES, WIDTH) * WIDTH**-0.5)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.Parameter(torch.ones(WIDTH))
        for block in self.blocks:
            for layer in (block.out, block.down):
                nn.init.normal_(layer.weight, 0, (2 * LAYERS * layer.in_features) ** -0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of (texts, tokens), the scores (texts, tokens, PIECES)."""
        cos, sin = (table[: tokens.shape[1]] for table in angles())
        x = self.embedding[tokens]
        for block in self.blocks:
            x = block(x, cos, sin)
        return rms_norm(x, self.last) @ self.embedding.T


def batches(texts: Sequence[Sequence[int]], shuffle: torch.Generator) -> Iterator[torch.Tensor]:
    """Texts of similar lengths, padded by -1, in random order."""
    order = torch.randperm(len(texts), generator=shuffle).tolist()
    order.sort(key=lambda one: len(texts[one]))
    groups: list[list[int]] = [[]]
    for one in order:
        if len(texts[one]) * (len(groups[-1]) + 1) > TOKENS_A_BATCH:
            groups.append([])
        groups[-1].append(one)
    for group in torch.randperm(len(groups), generator=shuffle).tolist():
        rows = [torch.tensor(texts[one]) for one in groups[group]]
        yield nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def loss_of(model: Writer, rows: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The sum of -log p of each token behind the first, and how many these are."""
    scores, truth = model(rows[:, :-1].clamp(min=0)), rows[:, 1:]
    told = nn.functional.cross_entropy(
        scores.flatten(0, 1), truth.flatten(), ignore_index=-1, reduction="sum"
    )
    return told, int((truth >= 0).sum())


def train(texts: Sequence[Sequence[int]], epochs: int) -> Writer:
    """A trained network."""
    torch.manual_seed(SEED)
    shuffle = torch.Generator().manual_seed(SEED)
    model = Writer()
    wide = [one for one in model.blocks.parameters() if one.ndim > 1]
    rest = [model.embedding, *(one for one in model.parameters() if one.ndim == 1)]
    optimizers = (
        torch.optim.Muon(wide, LEARNING_RATE, 0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, LEARNING_RATE, (0.9, 0.98), weight_decay=0.0),
    )
    steps = epochs * sum(1 for _ in batches(texts, torch.Generator().manual_seed(SEED)))
    step = 0
    for _ in range(epochs):
        for rows in batches(texts, shuffle):
            rate = min((step + 1) / WARM_UP_STEPS, 1.02 - step / steps, 1)
            told, count = loss_of(model, rows)
            model.zero_grad()
            (told / count).backward()
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = LEARNING_RATE * rate
                optimizer.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step} of {steps}: {told / count:.3f} a token", flush=True)
    return model.eval()


class StepAttention(nn.Module):
    """Attention of one token or of ``rows`` in a row, whose keys and values join earlier ones."""

    def __init__(self, block: Block, rows: int) -> None:
        super().__init__()
        self.block, self.rows = block, rows
        self.register_buffer("keys", torch.zeros(1, KEY_HEADS, LENGTH, HEAD))
        self.register_buffer("values", torch.zeros(1, KEY_HEADS, LENGTH, HEAD))

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        hidden: torch.Tensor,
        places: torch.Tensor,
    ) -> torch.Tensor:
        """Of (1, rows, WIDTH), the same shape."""
        block = self.block
        query = turned(self._by_head(block.query(x), HEADS), cos, sin)
        self.keys[:, :, places] = turned(self._by_head(block.key(x), KEY_HEADS), cos, sin)
        self.values[:, :, places] = self._by_head(block.value(x), KEY_HEADS)
        # The heads that share keys are rows of one product.
        shape = (1, KEY_HEADS, HEADS // KEY_HEADS * self.rows, HEAD)
        grouped = query.view(shape) if self.rows == 1 else query.reshape(shape)
        scores = grouped @ self.keys.transpose(-1, -2) * HEAD**-0.5
        if self.rows == 1:
            mixed = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ self.values
        else:  # each row has its own mask
            scores = scores.view(1, HEADS, self.rows, LENGTH).masked_fill(hidden, -torch.inf)
            mixed = torch.softmax(scores, -1).view(1, KEY_HEADS, -1, LENGTH) @ self.values
            mixed = mixed.view(1, HEADS, self.rows, HEAD).transpose(1, 2)
        made: torch.Tensor = block.out(mixed.reshape(1, self.rows, HEADS * HEAD))
        return made

    def _by_head(self, made: torch.Tensor, heads: int) -> torch.Tensor:
        """(1, rows, heads * HEAD) as (1, heads, rows, HEAD)."""
        if self.rows == 1:
            return made.view(1, heads, 1, HEAD)
        return made.view(1, self.rows, heads, HEAD).transpose(1, 2)


class WriterStep(nn.Module):
    """The same network for one token, or for ``rows`` of them in a row: what boards run."""

    def __init__(self, model: Writer, rows: int = 1) -> None:
        super().__init__()
        self.model, self.rows = model, rows
        self.attention = nn.ModuleList(StepAttention(block, rows) for block in model.blocks)
        cos, sin = angles()
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("places", torch.arange(LENGTH))
        if rows > 1:
            self.register_buffer("behind", torch.arange(rows))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Of tokens (rows,) and the first position (1,), the scores behind each: (rows, PIECES)."""
        x = self.model.embedding[token].view(1, self.rows, WIDTH)
        places, own = position, position
        if self.rows > 1:
            places = position + self.behind
            own = places[:, None]
        cos, sin, hidden = self.cos[places], self.sin[places], self.places > own
        for block, attention in zip(self.model.blocks, self.attention, strict=True):
            x = x + attention(rms_norm(x, block.before_attention), cos, sin, hidden, places)
            x = x + block.mlp(rms_norm(x, block.before_mlp))
        x = rms_norm(x, self.model.last)
        return (x @ self.model.embedding.T).view(self.rows, PIECES)


def perplexity(model: Path, texts: Sequence[Sequence[int]]) -> float:
    """Of the tokens behind the first one of each text, by the compiled model on the host."""
    told, count = 0.0, 0
    compiled = utvm_deploy.compile(model, "host")
    score = compiled.outputs[0].scale or 1.0
    with utvm_deploy.connect("host") as device:
        step = device.load(compiled)
        for text in texts:
            step.reset_state()
            for position, (token, truth) in enumerate(pairwise(text)):
                values = zip((token, position), compiled.inputs, strict=True)
                scores = step(*(np.full(one.shape, value, one.dtype) for value, one in values))
                real = scores.ravel().astype(np.float64) * score
                told += np.logaddexp.reduce(real) - real[truth]
                count += 1
    return float(np.exp(told / count))


def samples(texts: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Tokens and positions of texts, one after the other, for the quantizer."""
    rows = [(token, position) for text in texts for position, token in enumerate(text[:-1])]
    values = np.array(rows[:CALIBRATION_STEPS], np.int64)
    return {"token": values[:, :1], "position": values[:, 1:]}


def save(made: bytes, vocabulary: Vocabulary, path: Path) -> None:
    """Write a .tflite file with its vocabulary."""
    model = tflite_schema.read_model(made)
    tflite_schema.add_metadata(model, VOCABULARY, vocabulary.to_json())
    path.write_bytes(tflite_schema.model_bytes(model))


def main() -> None:
    """Make the files and print how good the models are."""
    parser = argparse.ArgumentParser(description="make the writer's files")
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"))
    parser.add_argument("-o", "--output", type=Path, default=HERE / "writer")
    options = parser.parse_args()
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)

    lines = definitions(options.wordnet)
    random.Random(SEED).shuffle(lines)
    held_out, shown = lines[: len(lines) // 10], lines[len(lines) // 10 :]
    vocabulary = Vocabulary(tuple(learn_pieces(shown, PIECES)), 0, LENGTH)
    texts = [tokens for line in shown if len(tokens := whole(vocabulary, line)) <= LENGTH + 1]
    tests = [tokens for line in held_out if len(tokens := whole(vocabulary, line)) <= LENGTH + 1]
    model = train(texts, EPOCHS)
    print(f"{sum(one.numel() for one in model.parameters()):,} parameters")
    with torch.no_grad():
        losses = [loss_of(model, rows) for rows in batches(tests, torch.Generator())]
    told = sum(float(sum_of) for sum_of, _ in losses)
    letters = sum(map(len, held_out)) + len(held_out)
    print(f"held out: {told / letters / math.log(2):.3f} bits a character")

    step = WriterStep(model).eval()
    one = (torch.tensor([1]), torch.tensor([1]))
    torch.export.save(torch.export.export(step, one), folder / "writer_float.pt2")
    (folder / "writer.json").write_text(vocabulary.to_json(), encoding="utf-8")
    tests = tests[:JUDGED]
    print(f"float32: perplexity {perplexity(folder / 'writer_float.pt2', tests):.2f}")
    for scheme in ("int8", "int4"):
        made = utvm_deploy.quantize(folder / "writer_float.pt2", samples(texts), scheme=scheme)
        path = folder / f"writer_{scheme}.tflite"
        save(made.data, vocabulary, path)
        print(f"{scheme}: perplexity {perplexity(path, tests):.2f}, {path.stat().st_size:,} bytes")


def whole(vocabulary: Vocabulary, line: str) -> list[int]:
    """The tokens of a text with its begin and its end."""
    return [vocabulary.end, *vocabulary.encode(line), vocabulary.end]


if __name__ == "__main__":
    main()

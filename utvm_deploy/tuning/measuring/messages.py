"""Messages between a tuning and the processes that measure for it elsewhere.

The messages travel as pickles between processes of equal versions of utvm_deploy. Who carries them
need not know what they hold.
"""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from utvm_deploy.boards.board import Board
from utvm_deploy.graph.model import Graph
from utvm_deploy.records import ModelRecord, Record, Setting
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.loaded import Spent
from utvm_deploy.tuning.measuring.model_runs import ModelRun
from utvm_deploy.tuning.measuring.places import Outcomes
from utvm_deploy.tuning.measuring.workload import Work


@dataclass(frozen=True)
class Session:
    """What all batches of a tuning have in common."""

    board: str
    board_digest: str
    template: str
    level: str
    works: tuple[Work, ...]


@dataclass(frozen=True)
class Batch:
    """Candidates to measure, each with the key of its kernel."""

    trials: tuple[tuple[str, Candidate], ...]
    # Checksums of right outputs that are known already, by kernel's key.
    expected: Mapping[str, int]


@dataclass(frozen=True)
class Measured:
    """The outcomes of a batch, and the checksums of right outputs that this process knows."""

    outcomes: Outcomes
    expected: Mapping[str, int]
    spent: Spent  # for this batch


@dataclass(frozen=True)
class WholeModels:
    """Models to run with the records and without them."""

    graphs: tuple[Graph, ...]
    records: tuple[Record | ModelRecord, ...]
    setting: Setting


@dataclass(frozen=True)
class RanWhole:
    """What became of whole models, and the records of it."""

    runs: tuple[ModelRun, ...]
    records: tuple[ModelRecord, ...]


def digest_of(board: Board) -> str:
    """Equal for boards whose files say the same."""
    return hashlib.sha256(board.source.encode()).hexdigest()


def session_of(board: Board, works: Sequence[Work], level: str) -> Session:
    """A session without what only the search needs."""
    light = tuple(replace(work, candidates=(), free=None) for work in works)
    return Session(board.name, digest_of(board), board.template, level, light)


def packed(message: object) -> bytes:
    """A message as bytes."""
    return zlib.compress(pickle.dumps(message), 1)


def unpacked(data: bytes) -> object:
    """The message that ``packed`` made. The data must come from our processes."""
    message: object = pickle.loads(zlib.decompress(data))
    return message

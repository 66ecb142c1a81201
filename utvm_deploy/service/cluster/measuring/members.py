"""Which workers of a cluster measure for a tuning: those that have its board and its tools.

A thread asks the scheduler who is there, and each new worker for its setting. So nothing else waits
for a scheduler that does not answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from distributed import Client, Future

from utvm_deploy.base.errors import TuneError
from utvm_deploy.records import Setting
from utvm_deploy.service.cluster.measuring.slot import OPEN_TIMEOUT_S
from utvm_deploy.service.cluster.measuring.tasks import MeasuringFailed
from utvm_deploy.service.cluster.offers import board_resource
from utvm_deploy.tuning.measuring.messages import unpacked

log = logging.getLogger(__name__)

#: How long the scheduler may take to answer.
ANSWER_S = 10.0
#: Failed batches in a row, without one that succeeded, after which a worker is left out.
FAILURES = 2
#: How often a worker is asked whose answer does not arrive.
ASKED = 3

#: What the fields of a ``Setting`` are called for people.
_NAMES = {"utvm": "version of utvm_deploy", "model": "cycle model", "unit": "unit of ticks"}


@dataclass(frozen=True)
class Patience:
    """How long a tuning waits for its workers, in seconds."""

    #: How often the scheduler is asked who is there.
    look_s: float = 1.0
    #: For the first worker to come.
    first_s: float = 60.0
    #: For a worker to start its board: it builds an image, and others may have the board.
    start_s: float = OPEN_TIMEOUT_S
    #: For other workers after the first one is ready.
    others_s: float = 5.0
    #: For a worker after the last one was lost.
    lost_s: float = 60.0


PATIENCE = Patience()


@dataclass
class Member:
    """A worker that offers the board."""

    address: str
    name: str
    slots: int
    asked: Future
    start_s: float  # of ``Patience``
    setting: Setting | None = None
    #: Why it is left out; empty if it is not.
    why: str = ""
    failed: set[int] = field(default_factory=set)
    since: float = field(default_factory=time.monotonic)

    @property
    def is_ready(self) -> bool:
        """Whether it measures."""
        return self.setting is not None and not self.why

    @property
    def is_starting(self) -> bool:
        """Whether it is worth waiting for."""
        is_open = self.setting is None and not self.why
        return is_open and time.monotonic() < self.since + self.start_s


@dataclass
class Members:
    """The workers of a tuning; a context manager.

    ``ask`` gives a future of the packed setting of the worker at an address. ``tell`` gets one line
    for each worker that is left out. ``here`` is the setting of this computer, if it is known.
    """

    _client: Client
    _board: str
    _ask: Callable[[str], Future]
    _tell: Callable[[str], None]
    _here: Setting | None
    patience: Patience = PATIENCE

    def __post_init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._asked: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._expected: Setting | None = None
        # When a worker was ready last, and when the scheduler answered.
        self._seen = self._looked = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="members", daemon=True)

    def __enter__(self) -> Members:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        # It may wait for a scheduler that has ended. As a daemon it keeps no process alive.
        self._thread.join(self.patience.look_s)

    @property
    def setting(self) -> Setting:
        """With which all of them measure."""
        assert self._expected is not None
        return self._expected

    @property
    def slots(self) -> int:
        """Boards of all of them."""
        with self._lock:
            return sum(one.slots for one in self._members.values() if one.is_ready)

    @property
    def addresses(self) -> frozenset[str]:
        """Where they are."""
        with self._lock:
            return frozenset(one.address for one in self._members.values() if one.is_ready)

    def wait(self) -> None:
        """Wait until there are workers with one setting; TuneError if none comes."""
        begin = time.monotonic()
        first: float | None = None
        while True:
            now = time.monotonic()
            with self._lock:
                asked = list(self._members.values())
                known = [one for one in asked if one.setting is not None and not one.why]
                if known and first is None:
                    first = now
                is_complete = asked and all(one.setting or one.why for one in asked)
                is_starting = any(one.is_starting for one in asked)
                is_late = first is not None and now > first + self.patience.others_s
                if known and (is_complete or is_late):
                    self._agree(known)
                    return
            if now > begin + self.patience.first_s and not is_starting:
                raise TuneError(self._absence(f"within {now - begin:.0f} s"))
            time.sleep(0.05)

    def check(self) -> None:
        """TuneError if there has been no worker, and none that starts, for too long."""
        with self._lock:
            if any(one.is_ready or one.is_starting for one in self._members.values()):
                self._seen = max(self._seen, self._looked)
            is_lost = time.monotonic() > self._seen + self.patience.lost_s
        if is_lost:
            raise TuneError(self._absence(f"for {self.patience.lost_s:.0f} s"))

    def succeeded(self, address: str) -> None:
        """A worker measured a batch."""
        with self._lock:
            if address in self._members:
                self._members[address].failed.clear()

    def failed(self, address: str, batch: int, text: str) -> None:
        """A worker did not; after several it is left out."""
        with self._lock:
            member = self._members.get(address)
            if member is None or member.why:
                return
            member.failed.add(batch)
            if len(member.failed) >= FAILURES:
                self._leave_out(member, text)

    def _absence(self, when: str) -> str:
        with self._lock:
            reasons = [
                f"{one.name}: {one.why or 'its board did not start'}"
                for one in self._members.values()
                if not one.is_ready
            ]
        why = f" ({'; '.join(reasons)})" if reasons else ""
        return (
            f"no worker measured on {self._board} {when}{why}; start "
            "`utvm worker ADDRESS` on a computer that has the board, and give the same command "
            "again: what was measured is kept"
        )

    def _watch(self) -> None:
        while not self._closing.is_set():
            try:
                self._look(self._present())
            except Exception as error:
                # The scheduler has ended: ``check`` has the deadline.
                log.debug("the scheduler does not answer: %s", error)
            self._closing.wait(self.patience.look_s)

    def _present(self) -> Mapping[str, Any]:
        """The workers that offer the board, by address."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        resource = board_resource(self._board)
        return {a: one for a, one in workers.items() if one["resources"].get(resource, 0) >= 1}

    def _look(self, present: Mapping[str, Any]) -> None:
        with self._lock:
            self._looked = time.monotonic()
            for address in [one for one in self._members if one not in present]:
                member = self._members.pop(address)
                self._tell(f"worker {member.name} has left; its candidates are measured elsewhere")
            for address, facts in present.items():
                if address not in self._members:
                    slots = int(facts["resources"][board_resource(self._board)])
                    self._asked[address] += 1
                    asked = self._ask(address)
                    self._members[address] = Member(
                        address, str(facts["name"]), slots, asked, self.patience.start_s
                    )
            answered = [
                one
                for one in self._members.values()
                if one.setting is None and not one.why and one.asked.done()
            ]
        for member in answered:
            self._hear(member)

    def _hear(self, member: Member) -> None:
        if member.asked.cancelled():
            # The scheduler was restarted, for example: the worker is asked again.
            with self._lock:
                self._members.pop(member.address, None)
            return
        try:
            setting = unpacked(member.asked.result(timeout=ANSWER_S))
            assert isinstance(setting, Setting)
        except Exception as error:
            with self._lock:
                asked = self._asked[member.address]
                if isinstance(error, MeasuringFailed) or asked >= ASKED:
                    self._leave_out(member, str(error) or type(error).__name__)
                else:
                    # A connection that was cut, for example: the worker is asked again.
                    self._members.pop(member.address, None)
            return
        with self._lock:
            member.setting = setting
            if self._expected is not None:
                self._compare(member, self._expected)
            self._seen = time.monotonic()

    def _agree(self, known: list[Member]) -> None:
        """Take the setting that most workers have; of equals, the one of this computer."""
        counts = Counter(one.setting for one in known if one.setting is not None)

        def rank(setting: Setting) -> tuple[bool, int]:
            here = self._here
            if here is not None:
                here = replace(here, unit=setting.unit, model=setting.model)
            return here == setting, counts[setting]

        self._expected = max(counts, key=rank)
        for member in known:
            self._compare(member, self._expected)

    def _compare(self, member: Member, expected: Setting) -> None:
        assert member.setting is not None
        found = _differences(member.setting, expected)
        if found:
            self._leave_out(member, "; ".join(found))

    def _leave_out(self, member: Member, why: str) -> None:
        member.why = why
        self._tell(f"worker {member.name} is left out: {why}")


def _differences(setting: Setting, expected: Setting) -> list[str]:
    """What differs, for people."""
    found = []
    for one in fields(Setting):
        mine, wanted = getattr(setting, one.name), getattr(expected, one.name)
        if mine != wanted:
            name = _NAMES.get(one.name, one.name)
            found.append(f"its {name} is {mine or 'none'!r}, not {wanted or 'none'!r}")
    return found

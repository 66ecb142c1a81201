"""What a running server consists of. Routers take what they need from here."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from utvm_deploy.service.server.jobs.board_states import Boards
from utvm_deploy.service.server.jobs.dispatcher import Dispatcher
from utvm_deploy.service.server.security.tokens import Access
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.holders import Holders
from utvm_deploy.service.server.store.settings import Settings


@dataclass(frozen=True)
class Parts:
    """Who makes the parts opens and closes them."""

    settings: Settings
    database: Database
    files: Files
    dispatcher: Dispatcher
    #: A folder for each job that runs, with its log, its events and its records so far.
    jobs: Path
    #: Dask's client.
    cluster: Any
    #: What requests must show.
    access: Access = field(default_factory=Access)
    #: Who has a session on a board.
    holders: Holders = field(default_factory=Holders)

    @cached_property
    def boards(self) -> Boards:
        """The boards of the cluster."""
        return Boards(self.cluster, self.database, self.holders)

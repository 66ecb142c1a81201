"""This computer: images are processes."""

from __future__ import annotations

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Target
from utvm_deploy.targets.host.fault import FAULTS

HOST = Target(
    name="host",
    tag=0,
    faults=FAULTS,
    cores=(
        Core(
            name="host",
            architecture="host",
            compiler="cc",
            fpus={"double": ""},
            cache_line_bytes=64,
            has_dwt=False,
        ),
    ),
)

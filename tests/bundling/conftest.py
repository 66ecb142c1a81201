"""Cases that are compiled once for all tests of bundles."""

from __future__ import annotations

import pytest
from bundle_cases import BOARD, Case, make_case


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A model for a Cortex-M7."""
    return make_case(tmp_path_factory.mktemp("case"), "net", BOARD)


@pytest.fixture(scope="session")
def host_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The same model for this computer."""
    return make_case(tmp_path_factory.mktemp("host-case"), "net", "host")


@pytest.fixture
def form_case(form: str, case: Case, host_case: Case) -> Case:
    """The model for the format's bundle: ESP-IDF builds for no Cortex-M."""
    return host_case if form == "esp-idf" else case

"""What tests of vendors share: the stand-in for MediaTek's library, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vendor.neuron_networks import build_stand_in


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the library."""
    return build_stand_in(tmp_path_factory.mktemp("stand-in"))

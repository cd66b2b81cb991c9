"""What every test shares: the oracle can be imported, and hypothesis draws the same each time."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from mc import kernel

# pytest's importlib mode puts no folder of tests on the path; `from oracle import ...` needs it
sys.path.insert(0, str(Path(__file__).parent))

# The first call compiles, so a deadline would measure the compiler; a fixed choice never flakes.
settings.register_profile(
    "fixed",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fixed")

# a parent that ignores Ctrl-C, as of a job in the background, hands that down
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# what is printed must not depend on where the tests run
for variable in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS"):
    os.environ.pop(variable, None)

# a report after every run would take longer than all tests; its own tests ask for it
os.environ["RETRYSTORM_NO_REPORT"] = "1"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process of `-n auto` neighbouring tests: what a file needs is made once, or twice.

    By default the tests of a file are dealt out like cards.
    """
    if config.getvalue("dist") != "load":
        return None  # another order was asked for
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Compile the usual loops before a test looks at what their first use prints."""
    kernel.prepare()
    kernel.prepare(shape=[kernel.Alike(), kernel.Alike(can_fail=True)])


@pytest.fixture(scope="session", autouse=True)
def _without_progress() -> Iterator[None]:
    """Its lines tell how fast a machine is; their own tests ask for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mc.cli.stderr.PROGRESS_SECONDS", math.inf)
        yield


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give a finished run with its report; what is drawn once is not drawn again."""

    @cache
    def folder_of(text: str) -> Path:
        from folders import run

        import mc

        folder = tmp_path_factory.mktemp("drawn") / "results"
        run(text, folder)
        mc.report(folder)
        return folder

    return folder_of


@pytest.fixture(scope="session")
def small(drawn: Callable[[str], Path]) -> Path:
    """Two scenarios and two policies, one by one."""
    from reported import SMALL

    return drawn(SMALL)


@pytest.fixture(scope="session")
def grid(drawn: Callable[[str], Path]) -> Path:
    """A sweep."""
    from reported import GRID

    return drawn(GRID)

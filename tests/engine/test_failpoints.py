"""Failpoints: one name each, known in one place, and specifications that are understood or refused."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from omnigraph_engine import failpoints
from omnigraph_engine.errors import InvalidArgument, StorageError
from omnigraph_engine.failpoints import Failpoint, Moment, effect, faults

ENGINE = Path(failpoints.__file__).parent
SOURCES = {path.relative_to(ENGINE).as_posix(): path.read_text() for path in ENGINE.rglob("*.py")}

# Where each durable effect is: the module that does it.
PLACES = {
    Failpoint.STAGE: "write/load.py",
    Failpoint.ARM: "commit/coordinator.py",
    Failpoint.FORK: "commit/coordinator.py",
    Failpoint.COMMIT_TABLE: "commit/coordinator.py",
    Failpoint.CONFIRM: "commit/coordinator.py",
    Failpoint.PUBLISH: "commit/coordinator.py",
    Failpoint.DISARM: "commit/coordinator.py",
    Failpoint.OWN_UNDO: "commit/recovery.py",
    Failpoint.ABORT: "commit/recovery.py",
    Failpoint.RESTORE: "commit/recovery.py",
    Failpoint.CONVERGE: "commit/recovery.py",
    Failpoint.ROLL_FORWARD: "commit/recovery.py",
    Failpoint.AUDIT: "commit/recovery.py",
    Failpoint.CLEAN: "commit/recovery.py",
    Failpoint.CREATE_BRANCH: "branches/branches.py",
    Failpoint.BEGIN_BRANCH: "branches/branches.py",
    Failpoint.DELETE_BRANCH: "branches/branches.py",
    Failpoint.RECLAIM: "branches/branches.py",
}


def test_every_name_is_used_once() -> None:
    assert len(Failpoint) == len(Failpoint.__members__) == len({point.value for point in Failpoint})


@pytest.mark.parametrize("point", Failpoint)
def test_every_failpoint_stands_around_an_effect_where_it_is_expected(point: Failpoint) -> None:
    found = [
        name
        for name, source in SOURCES.items()
        if name != "failpoints.py" and re.search(rf"effect\(Failpoint\.{point.name}\)", source)
    ]
    assert found == [PLACES[point]]


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "failpoints.py"])
def test_failpoints_are_named_by_constants_and_never_by_text(name: str) -> None:
    texts = {point.value for point in Failpoint}
    literals = [node.value for node in ast.walk(ast.parse(SOURCES[name])) if isinstance(node, ast.Constant)]
    assert [literal for literal in literals if literal in texts] == []


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "sidecar.arm",
        "sidecar.arm=error",
        "sidecar.arm:during=error",
        "sidecar.arm:before=explode",
        "sidecar.arms:before=error",
        "sidecar.arm#x:before=error",
        "sidecar.arm:before=error;what",
    ],
)
def test_a_specification_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="failpoint") as caught:
        faults(text)
    assert "sidecar.arm" in str(caught.value.hint)


def test_each_fault_fires_once_and_at_its_turn() -> None:
    handle = faults("table.commit#2:after=error;sidecar.arm:before=error")
    with pytest.raises(StorageError, match=r"sidecar\.arm:before"):
        handle(Failpoint.ARM, Moment.BEFORE)
    handle(Failpoint.ARM, Moment.BEFORE)
    handle(Failpoint.COMMIT_TABLE, Moment.AFTER)
    handle(Failpoint.COMMIT_TABLE, Moment.BEFORE)
    with pytest.raises(StorageError, match=r"table\.commit:after"):
        handle(Failpoint.COMMIT_TABLE, Moment.AFTER)
    handle(Failpoint.COMMIT_TABLE, Moment.AFTER)


def test_an_effect_reports_before_and_after_and_only_inside_the_block() -> None:
    seen = []
    with failpoints.installed(lambda point, moment: seen.append((point, moment))), effect(Failpoint.ARM):
        seen.append("done")
    with effect(Failpoint.ARM):
        pass
    assert seen == [(Failpoint.ARM, Moment.BEFORE), "done", (Failpoint.ARM, Moment.AFTER)]


def test_an_effect_that_failed_is_not_reported_as_done() -> None:
    seen = []
    with (
        failpoints.installed(lambda _point, moment: seen.append(moment)),
        pytest.raises(StorageError),
        effect(Failpoint.ARM),
    ):
        raise StorageError("no answer")
    assert seen == [Moment.BEFORE]


@pytest.mark.parametrize(("fault", "status"), [("kill", -9), ("error", 1)])
def test_a_process_gets_its_faults_from_its_environment(fault: str, status: int) -> None:
    script = "from omnigraph_engine.failpoints import *\nwith effect(Failpoint.ARM): pass"
    environment = {"OMNIGRAPH_FAILPOINTS": f"sidecar.arm:after={fault}", "PYTHONPATH": str(ENGINE.parent)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert done.returncode == status

"""Real stores for every test: a fresh local folder, and an S3 emulator on loopback."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
import pytest
from hypothesis import settings
from moto.server import ThreadedMotoServer
from omnigraph_engine.storage import Storage

# A deadline measures the machine, not the code; and the examples of a run are those of every run.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

BUCKET = "graphs"

SOCIAL = """
node Person {
    name: String @key
    age: I32?
}
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""


@pytest.fixture(scope="session")
def s3_options() -> Iterator[Mapping[str, str]]:
    """Storage options of an S3 emulator that lives as long as the test run."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "aws_endpoint": f"http://{host}:{port}",
        "allow_http": "true",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "aws_region": "us-east-1",
    }
    client = boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint"],
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - the emulator takes any
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
    yield options
    server.stop()


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty graph root, on each kind of store in turn."""
    if request.param == "local":
        place = Storage(tmp_path / "graph with space.omni")
        place.make_root()
        return place
    return Storage(f"s3://{BUCKET}/{uuid.uuid4()}/graph.omni", request.getfixturevalue("s3_options"))


@pytest.fixture
def social() -> str:
    """The schema of the worked example in the format's description."""
    return SOCIAL

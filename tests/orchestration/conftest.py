"""The clubs at a server without deployments, and the command that deploys them."""

import json
import logging
import sys

import pytest
from prefect.client.orchestration import get_client

from cloister.flows.cli.app import run


@pytest.fixture
def server(prefect_server, place):
    """The server without deployments, and the clubs."""
    yield place
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)


@pytest.fixture
def deploy(server, capsys):
    """Run the command on the clubs; its JSON."""

    def command(*words: object) -> dict:
        capsys.readouterr()
        code = run(["deploy", str(server.spec), *map(str, words), "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    return command


@pytest.fixture
def logs(capsys):
    """What standard error says since now, with Prefect's log as it is where a server is set.

    The settings of the tests are those of commands without one, whose log is empty.
    """
    log, root, shown = (
        logging.getLogger("prefect"),
        logging.getLogger(),
        logging.StreamHandler(sys.stderr),
    )
    before = log.level
    log.setLevel(logging.INFO)
    root.addHandler(shown)
    capsys.readouterr()
    yield lambda: capsys.readouterr().err
    root.removeHandler(shown)
    log.setLevel(before)

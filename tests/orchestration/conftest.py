"""The clubs at a server without deployments, the command that deploys them, a tracking store."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cloister.flows.cli.app import run


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder to work in, with a home of its own that is empty."""
    monkeypatch.setenv("CLOISTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server(prefect_server, place):
    """The server without deployments, and the clubs."""
    from prefect.client.orchestration import get_client

    yield place
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)


@pytest.fixture
def failing() -> Iterator[Callable[[int], str]]:
    """Starts a server that is in health, and answers all else with an error; its URL."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path.endswith("/health") else self.server.status)
            self.end_headers()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *words: object) -> None:
            """Nothing."""

    def start(status: int) -> str:
        server.status = status
        return f"http://127.0.0.1:{server.server_port}/api"

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield start
        server.shutdown()


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


@pytest.fixture(scope="module")
def certificate(basis):
    """The certificate of a release of the small world."""
    from cloister.tasks.release.certify import certify

    return certify(basis)


@pytest.fixture(scope="module")
def tracking_uri(tmp_path_factory) -> str:
    """Where the tests of a module track."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture(scope="module")
def tracker(tracking_uri, tmp_path_factory):
    """The tracking store there."""
    from cloister.tasks.stores.mlflow_store import Tracker

    return Tracker.open(tracking_uri, tmp_path_factory.mktemp("artifacts"))


@pytest.fixture(scope="module", name="run")
def tracked_run(tracker) -> str:
    """The run of that release."""
    return tracker.begin("r-0123456789", "small", "kamino", {"prefect.flow_run": "flow-1"})

"""A real server's scheduler and automations, as operators start them: nothing here makes a run.

It takes about two minutes for each, since a schedule is at most each minute. The libraries of the
server decide whether it schedules: run this file alone against new ones.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from quick_release import quick_release
from real_server import ROOT, command, listed, real_server, running, wait

from cloister.tasks.ledger.access import releases

# Seconds in which a run must have come and ended: a minute until it is due, and a release on a
# machine that is busy.
RELEASED = 300


@pytest.fixture
def servers(place) -> Iterator[dict[str, str]]:
    """The settings of a Prefect server of its own, started as operators start it."""
    with real_server(place.folder, {"CLOISTER_HOME": str(place.home.folder)}) as settings:
        yield settings


@pytest.mark.slow
def test_a_killed_run_is_marked_as_crashed_and_linked_with_the_one_that_resumes_it(place, servers):
    deploy = ["deploy", str(place.spec), "--cron", "* * * * *", "--evaluate", "none"]
    subprocess.run([sys.executable, "-c", command(deploy)], env=servers, check=True)
    log = place.folder / "killed.log"
    with running(["-c", command(["serve"])], servers, log) as process:
        wait(lambda: " fit started" in log.read_text(), RELEASED, "no run began", place.folder)
        process.kill()
    (begun,) = releases(place.home, "clubs")
    with running(["-c", command(["serve"])], servers, place.folder / "serve.log"):
        wait(lambda: _completed(servers), RELEASED, "no run was completed", place.folder)
    crashed, resumed = _runs(servers, "CRASHED"), _completed(servers)
    assert resumed[0]["auto_scheduled"] and resumed[0]["created_by"]["type"] == "SCHEDULE"
    assert "* * * * * (UTC)" in (place.folder / "serve.log").read_text()  # with its next run
    assert begun.id in crashed[0]["name"] and begun.id in resumed[0]["name"]
    assert "is marked as crashed" in (place.folder / "serve.log").read_text()
    links = listed(servers, "artifacts", {"artifacts": {"key": {"like_": "resume"}}})
    assert {(link["key"], link["flow_run_id"]) for link in links} == {
        (f"{begun.id}-resumes", resumed[0]["id"]),
        (f"{begun.id}-resumed-by", crashed[0]["id"]),
    }
    assert all(
        crashed[0]["id"] in each["data"] or resumed[0]["id"] in each["data"] for each in links
    )
    ids = {"flow_run_id": {"any_": [resumed[0]["id"]]}}
    said = [line["message"] for line in listed(servers, "logs", {"logs": ids})]
    assert f"resumes release {begun.id}, nothing charged" in said
    assert [held.state for held in releases(place.home, "clubs")][0] == "candidate"


@pytest.mark.slow
def test_a_signal_ends_serve_with_one_line_in_a_run_whose_server_was_killed(place):
    log, home = place.folder / "ended.log", {"CLOISTER_HOME": str(place.home.folder)}
    with real_server(place.folder, home) as settings:
        deploy = ["deploy", *quick_release(place)[1:], "--cron", "* * * * *"]
        subprocess.run([sys.executable, "-c", command(deploy)], env=settings, check=True)
        served = running(["-c", command(["serve"])], settings, log)
        process = served.__enter__()
        wait(lambda: " started" in log.read_text(), RELEASED, "no run began", place.folder)
    process.terminate()
    assert process.wait(120) == -signal.SIGTERM
    assert log.read_text().endswith(
        "\ncloister serve was ended; a run that it began is resumed by the next\n"
    )


@pytest.fixture
def told() -> Iterator[tuple[str, list[dict]]]:
    """The URL of a webhook, and what was posted to it."""
    posted: list[dict] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posted.append(json.loads(body) if isinstance(body, str) else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
        server.shutdown()


@pytest.mark.slow
def test_the_automations_of_the_docs_fire(place, servers, told):
    url, posted = told
    program = (
        f"from prefect.blocks.webhook import Webhook; print(Webhook(url={url!r}).save('hook'))"
    )
    made = subprocess.run(
        [sys.executable, "-c", program], env=servers, capture_output=True, text=True, check=True
    )
    ready = (ROOT / "docs" / "automations.yaml").read_text()
    automations = place.folder / "automations.yaml"
    automations.write_text(
        ready.replace("block_document_id: WEBHOOK", f"block_document_id: {made.stdout.strip()}")
    )
    create = ["-m", "prefect", "automation", "create", "--from-file", str(automations)]
    subprocess.run([sys.executable, *create], env=servers, check=True)
    assert _cloister(servers, quick_release(place)) == 0
    assert _cloister(servers, [*quick_release(place), "--epsilon", "4"]) == 2
    place.data.write_text(place.data.read_text().replace("north", "nowhere"))
    assert _cloister(servers, [*quick_release(place), "--epsilon", "1/2"]) == 2
    wait(lambda: len(posted) >= 3, RELEASED, f"only {posted} was told", place.folder)
    assert sorted(each["state"] for each in posted) == ["AwaitingReview", "Declined", "Failed"]
    (waiting,) = [each for each in posted if each["state"] == "AwaitingReview"]
    assert releases(place.home, "clubs")[0].id in waiting["message"]
    assert "nowhere" not in json.dumps(posted)


def _cloister(settings: dict[str, str], words: list[str]) -> int:
    return subprocess.run([sys.executable, "-c", command(words)], env=settings).returncode


def _completed(settings: dict[str, str]) -> list[dict]:
    """The runs that ended well, as the server tells of them."""
    return _runs(settings, "COMPLETED")


def _runs(settings: dict[str, str], kind: str) -> list[dict]:
    return listed(settings, "flow_runs", {"flow_runs": {"state": {"type": {"any_": [kind]}}}})

"""How fast the page answers many visitors of a large ledger, beside a process that writes to it."""

import asyncio
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import httpx
import numpy as np
import pytest
from large_ledger import write_releases

from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger

SESSIONS, AT_ONCE, SECONDS = 200, 20, 30.0

SERVER = """
import sys
from pathlib import Path
import uvicorn
from cloister.flows.page.app import page_app
from cloister.flows.page.views import Sheets
from cloister.flows.page.visitors import Sessions
from cloister.tasks.home.home import Home
home = Home.current({"CLOISTER_HOME": sys.argv[1]})
app = page_app({"home": Sheets("home", home)}, Sessions("key"), ["127.0.0.1"])
app.state.sessions.admits_attempt = lambda address: True
uvicorn.run(app, port=int(sys.argv[2]), log_level="critical", timeout_keep_alive=75)
"""

WRITER = """
import sys, time
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger
home = Home.current({"CLOISTER_HOME": sys.argv[1]})
ledger = open_ledger(home)
for number in range(10_000):
    ledger.grant("account-0", "row", 10_000 + number, "1/1000", "year", "officer", "once more")
    time.sleep(0.5)
"""


@pytest.mark.benchmark
@pytest.mark.parametrize("releases", [10_000])
def test_200_sessions_of_which_20_at_once_beside_a_writer(tmp_path: Path, releases: int):
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home")})
    write_releases(open_ledger(home), releases)
    ids = list(open_ledger(home).books().releases)
    program = [sys.executable, "-c"]
    server = subprocess.Popen([*program, SERVER, str(home.folder), "8743"])
    writer = subprocess.Popen([*program, WRITER, str(home.folder)])
    try:
        taken, codes = asyncio.run(visits("http://127.0.0.1:8743", ids))
    finally:
        for process in (server, writer):
            process.kill()
    for sheet, seconds in sorted(taken.items()):
        p50, p95 = np.quantile(seconds, [0.5, 0.95])
        print(f"{sheet:12} {len(seconds):6} visits  p50 {p50:.3f} s  p95 {p95:.3f} s")
    everything = np.concatenate(list(map(np.array, taken.values())))
    print(f"all: {len(everything)} visits, p95 {np.quantile(everything, 0.95):.3f} s")
    assert max(codes) < 500
    assert np.quantile(everything, 0.95) <= 1.0


async def visits(base: str, ids: list[str]) -> tuple[dict[str, list[float]], set[int]]:
    """Seconds of each visit by sheet, and the codes of the answers."""
    taken, codes = defaultdict(list), set()
    clients = [httpx.AsyncClient(base_url=base, timeout=60) for _ in range(SESSIONS)]
    for _ in range(100):
        try:
            await clients[0].get("/page.css")
            break
        except httpx.TransportError:
            await asyncio.sleep(0.2)
    for client in clients:
        await client.post("/login", data={"shown": "key"})
    await clients[0].get("/homes/home")  # reads the ledger for the first time

    sheets = {
        "overview": lambda: "",
        "releases": lambda: f"/releases?sheet={random.randint(1, 100)}",
        "release": lambda: f"/releases/{random.choice(ids)}",
        "account": lambda: f"/accounts/account-{random.randint(0, 9)}",
        "ledger": lambda: f"/ledger?before={random.randint(1, 40_000)}",
        "refusals": lambda: "/refusals",
    }
    end = time.monotonic() + SECONDS

    async def person() -> None:
        while time.monotonic() < end:
            sheet = random.choice(list(sheets))
            began = time.monotonic()
            answer = await random.choice(clients).get(f"/homes/home{sheets[sheet]()}")
            taken[sheet].append(time.monotonic() - began)
            codes.add(answer.status_code)
            await asyncio.sleep(random.uniform(0.5, 1.5))  # people read what they see

    await asyncio.gather(*(person() for _ in range(AT_ONCE)))
    return taken, codes

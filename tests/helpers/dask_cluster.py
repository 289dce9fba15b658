"""A cluster of Dask as somebody keeps it: a scheduler and workers by their commands, with TLS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dask
from distributed import Security

SECONDS = 60
"""Seconds until a process of the cluster has started."""


@dataclass
class Cluster:
    """A running cluster; ``environment`` names its certificates for whoever joins it."""

    folder: Path
    environment: dict[str, str]
    address: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *words: str, until: Path | None = None) -> None:
        """Start a command of Dask, until it has written a file."""
        log = (self.folder / f"{words[0]}-{len(self.processes)}.log").open("wb")
        command = [sys.executable, "-m", "dask", *words]
        env = os.environ | self.environment | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.processes.append(
            subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=self.folder)
        )
        end = time.monotonic() + SECONDS
        while until and not until.exists():
            assert time.monotonic() < end
            time.sleep(0.1)

    def add_worker(self, *words: str) -> None:
        """Start a worker, which keeps its rows in memory."""
        words = words or ("--memory-limit", "0")
        own = ("--nthreads", "1", "--no-dashboard", "--local-directory", str(self.folder))
        self.start("worker", self.address, *own, *words)

    def kill(self) -> None:
        """End all processes at once."""
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def dask_cluster(folder: Path, *, hidden: bool = True) -> Iterator[Cluster]:
    """A scheduler without workers, whose certificates this process knows.

    It and its workers have no web pages if they are ``hidden``.
    """
    temporary = Security.temporary()
    texts = {
        "ca": temporary.tls_ca_file,
        "cert": temporary.tls_client_cert,
        "key": temporary.tls_client_key,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    tls = {"ca-file": str(folder / "ca")}
    for role in ("scheduler", "worker", "client"):
        tls |= {f"{role}.{name}": str(folder / name) for name in ("cert", "key")}
    routes = {f"distributed.{role}.http.routes": "[]" for role in ("scheduler", "worker")}
    names = {f"distributed.comm.tls.{name}": path for name, path in tls.items()}
    environment = {
        f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": path
        for name, path in (names | (routes if hidden else {})).items()
    }
    cluster, listening = Cluster(folder, environment), folder / "scheduler.json"
    with ExitStack() as ending:
        ending.enter_context(dask.config.set(names))
        ending.callback(cluster.kill)
        words = ("--protocol", "tls", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        cluster.start("scheduler", *words, "--scheduler-file", str(listening), until=listening)
        cluster.address = json.loads(listening.read_text())["address"]
        yield cluster

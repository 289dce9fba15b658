"""A cluster of Dask as somebody keeps it: a scheduler and workers by their commands, with TLS."""

import datetime as dt
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dask
import distributed  # noqa: F401 - its settings are there before ours are put in their place
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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


_ROLES = ("scheduler", "worker", "client")


def _certified(folder: Path, expired: Collection[str]) -> dict[str, str]:
    """The files of an authority and of what it certifies for each role, as Dask names them."""
    authority, day = ec.generate_private_key(ec.SECP256R1()), dt.timedelta(days=1)
    now = dt.datetime.now(dt.UTC)

    def certificate(role: str, key: ec.EllipticCurvePrivateKey) -> bytes:
        names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (role, "ca")]
        built = (
            x509.CertificateBuilder(*reversed(names), key.public_key(), x509.random_serial_number())
            .not_valid_before(now - 9 * day)
            .not_valid_after(now - day if role in expired else now + day)
            .add_extension(x509.BasicConstraints(role == "ca", None), critical=True)
            .sign(authority, hashes.SHA256())
        )
        return built.public_bytes(serialization.Encoding.PEM)

    tls = {"ca-file": str(folder / "ca")}
    (folder / "ca").write_bytes(certificate("ca", authority))
    for role in _ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        written = {
            "cert": certificate(role, key),
            "key": key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        }
        for name, content in written.items():
            path = folder / f"{role}.{name}"
            path.write_bytes(content)
            tls[f"{role}.{name}"] = str(path)
    return tls


@contextmanager
def dask_cluster(
    folder: Path, *, hidden: bool = True, expired: Collection[str] = ()
) -> Iterator[Cluster]:
    """A scheduler without workers, whose certificates this process knows.

    It and its workers have no web pages if they are ``hidden``; the certificates of some roles have
    ``expired``: of the ``scheduler``, a ``worker``, or the ``client``, which is this process.
    """
    tls = _certified(folder, expired)
    routes = {f"distributed.{role}.http.routes": "[]" for role in _ROLES[:2]}
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

"""Workers: processes of a Dask cluster that read parts of the data, hold them, count and draw.

Dask schedules, moves and recomputes. A worker gets public descriptions of parts, functions and
partitions; it gives exact sums, or rows by number, to the process of the door alone, which adds the
noise.

Privacy: workers hold sensitive rows in memory and are trusted as this process is (docs/privacy.md).
Between them and this process everything goes by TLS. They write no row to a disk and none into a
log, since errors are results: Dask logs what a failed function was given.
"""

from __future__ import annotations

import logging
import pickle
import platform
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cryptography import x509

from cloister import devices
from cloister.arrays import Integers
from cloister.errors import InputError, PlanError, StorageError
from cloister.tasks.data.session import Confidential
from cloister.tasks.home.process import code_version
from cloister.tasks.requests.release_request import LOCAL_WORKERS

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

_T = TypeVar("_T")

_AHEAD = 4
"""Results for each thread of the workers that are computed before they are taken."""

_SUMMED = 8
"""Sums that a worker adds up at a time."""

_SECONDS = 30
"""Seconds in which a scheduler answers, and has a worker."""

_LIBRARIES = ("dask", "distributed", "numpy", "pandas", "pyarrow")
"""Libraries that move rows, read them, or compute with them: of other versions, cells may be read
otherwise, and what is sent may be no value there."""

_OF_TLS = r"\[SSL: \w+\] ([^(]+)"
"""What OpenSSL says of a connection, in the text of an error."""

_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
"""Variables of the environment that workers of this machine are started with."""

_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        # nothing of the rows is written to a disk, nor is a worker ended that is busy reading
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        # no web page of how many bytes a worker holds, which anybody on the machine could read
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        "distributed.worker.profile.enabled": False,
        # Dask's own threshold gives memory back at once, and takes it anew: most of a worker's time
        f"{_ENVIRONMENT}.MALLOC_TRIM_THRESHOLD_": 1 << 28,
        f"{_ENVIRONMENT}.MALLOC_MMAP_THRESHOLD_": 1 << 25,
        "distributed.diagnostics.nvml": False,
        "logging": {"distributed": "critical"},
    }
)


@dataclass(frozen=True)
class _Failure:
    """What a function raised, as a result."""

    error: Exception


class Workers(Confidential):
    """The workers that ``client`` reaches; what they need is closed with ``closing``."""

    __slots__ = ("_arithmetics", "_client", "closing")

    def __init__(self, client: Client, closing: ExitStack) -> None:
        self.closing = closing
        self._client = client
        self._arithmetics: set[str] = set()

    @property
    def arithmetic(self) -> str | None:
        """How all workers round, as they say when first asked; None if it is not the same."""
        if not self._arithmetics:
            said = self._client.run(devices.arithmetic, on_error="ignore")
            self._arithmetics = set(said.values())
        return next(iter(self._arithmetics)) if len(self._arithmetics) == 1 else None

    def map(self, function: Callable[..., _T], *arguments: Iterable[Any]) -> Iterator[_T]:
        """What ``function`` makes of the arguments, in order, some of them ahead.

        Arguments may be what workers :meth:`hold`. The function is sent once.

        Raises:
            StorageError: the cluster was lost.
        """
        shared, waiting = self._sent(function), deque[Any]()
        most = _AHEAD * max(sum(self._client.nthreads().values()), 1)
        for of_one in zip(*arguments, strict=True):
            waiting.append(self._submit(shared, *of_one))
            if len(waiting) == most:
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def hold(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Future[Any]]:
        """What ``function`` makes of the arguments, held where it was computed."""
        shared = self._sent(function)
        return [self._submit(shared, *of_one) for of_one in zip(*arguments, strict=True)]

    def total(self, kernel: Callable[..., Integers], items: Iterable[Any]) -> Integers:
        """The sum of what ``kernel`` counts in each item, which workers add up among themselves.

        Raises:
            StorageError: the cluster was lost.
        """
        sums, added = self.hold(kernel, items), self._sent(_added)
        while len(sums) > 1:
            groups = [sums[first : first + _SUMMED] for first in range(0, len(sums), _SUMMED)]
            sums = [self._submit(added, *group) for group in groups]
        result: Integers = self._result(sums[0])
        return result

    def _sent(self, function: Callable[..., Any]) -> Future[Any]:
        """A function on a worker; the scheduler has its bytes, so that no lost worker loses it."""
        from distributed.protocol.pickle import dumps

        return self._client.submit(pickle.loads, dumps(function), pure=False)

    def _submit(self, function: Future[Any], *arguments: Any) -> Future[Any]:
        return self._client.submit(_called, _software(), function, *arguments, pure=False)

    def _result(self, future: Future[Any]) -> Any:
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        try:
            result = future.result()
        except (CommClosedError, FutureCancelledError, KilledWorker, TimeoutError) as error:
            raise StorageError(
                f"the cluster of workers was lost ({type(error).__name__}); give workers that "
                "stay, with memory for their share of the rows, and run the same command again"
            ) from None
        if isinstance(result, _Failure):
            if isinstance(result.error, MemoryError):
                raise StorageError(
                    "a worker has too little memory for its share of the rows; give workers more "
                    "memory, or more workers, and run the same command again"
                )
            raise result.error
        return result


def _called(
    software: Mapping[str, str], function: Callable[..., _T], *arguments: Any
) -> _T | _Failure:
    """What a function makes of arguments; their failure, or its own, is a result.

    So is that a worker which joined late is none that rows are given to.
    """
    from distributed import get_worker

    for argument in (function, *arguments):
        if isinstance(argument, _Failure):
            return argument
    if problems := "; ".join(_problems(_facts_of(get_worker()), software)):
        return _Failure(StorageError(f"{problems}; end those, and run the same command again"))
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - raised again by the process that asked
        return _Failure(error.with_traceback(None))


def _added(*counts: Integers) -> Integers:
    first, *rest = counts
    return sum(rest, first)


@contextmanager
def workers_of(address: str | None) -> Iterator[Workers | None]:
    """The workers of ``local:N``, made for this time, or of a scheduler, ``tls://HOST:PORT``.

    Raises:
        InputError: Dask is not installed, or nothing answers there.
        PlanError: a worker has another version of the code or of a library, may write rows to a
            disk, or shows on a web page how much it holds.
    """
    if address is None:
        yield None
        return
    try:
        import dask
        import distributed  # noqa: F401
    except ImportError:
        raise InputError("--workers needs Dask: pip install 'cloister[dask]'") from None
    log = logging.getLogger("distributed")  # its level is set when it is imported
    with dask.config.set(dict(_CONFIG)), ExitStack() as closing:
        closing.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
        client = _client_of(address, closing)
        _require_alike(client)
        yield Workers(client, closing)


def _client_of(address: str, closing: ExitStack) -> Client:
    """The client of a scheduler, or of new processes of this machine; encrypted both ways."""
    from distributed import Client, LocalCluster, Security

    if local := re.fullmatch(LOCAL_WORKERS, address):
        try:
            cluster = LocalCluster(
                n_workers=int(local[1]),
                threads_per_worker=1,
                memory_limit=0,
                dashboard_address=None,
                local_directory=tempfile.gettempdir(),
                security=Security.temporary(),
            )
            cluster = closing.enter_context(cluster)
            return closing.enter_context(Client(cluster, direct_to_workers=True))
        except (OSError, RuntimeError, TimeoutError) as error:
            raise StorageError(
                f"the processes of --workers {address} cannot be started ({_reason(error, '')}); "
                "run the same command again, or with fewer; nothing was charged now"
            ) from None
    security = Security(require_encryption=True)
    if not all((security.tls_ca_file, security.tls_client_cert, security.tls_client_key)):
        raise InputError(
            "--workers tls://... needs certificates: name ca-file, and cert and key of the client, "
            "under distributed.comm.tls in the configuration of Dask"
        )
    try:
        return closing.enter_context(Client(address, security=security, timeout=_SECONDS))
    except (OSError, TimeoutError) as error:
        reason = _reason(error, security.tls_client_cert)
        raise InputError(
            f"no scheduler of Dask with these certificates answers at {address} ({reason}); start "
            "one, correct the address, or renew the certificates; nothing was charged now"
        ) from None


def _reason(error: Exception, certificate: str) -> str:
    """Why there is no connection; a scheduler may close it before it says what of our certificate.

    The certificate is a file, or its text.
    """
    if refused := re.search(_OF_TLS, f"{error} {error.__cause__}"):
        return refused[1].strip()
    with suppress(OSError, ValueError):
        text = certificate if "-----BEGIN" in certificate else Path(certificate).read_text()
        ours = x509.load_pem_x509_certificate(text.encode())
        if ours.not_valid_after_utc < datetime.now(UTC):
            return "certificate expired"
    return type(error).__name__


def _require_alike(client: Client) -> None:
    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError:
        raise PlanError("the cluster has no workers; start some; nothing was charged now") from None
    facts = client.run(_facts_of)
    if problems := {problem for each in facts.values() for problem in _problems(each, _software())}:
        raise PlanError(f"{'; '.join(sorted(problems))}; nothing was charged now")


class _Facts(NamedTuple):
    """What a worker runs, whether its results stay in memory, and whether it has no web page."""

    software: Mapping[str, str]
    in_memory: bool
    without_page: bool


def _facts_of(dask_worker: Worker) -> _Facts:
    """The facts of the worker that runs this."""
    import dask

    routes = dask.config.get("distributed.worker.http.routes")
    return _Facts(_software(), isinstance(dask_worker.data, dict), not routes)


@cache
def _software() -> Mapping[str, str]:
    """The versions of the code, of Python and of libraries, here."""
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    return {"cloister": code_version(), "python": platform.python_version()} | versions


def _problems(worker: _Facts, software: Mapping[str, str]) -> Iterator[str]:
    """What a worker must not be given rows for, by a process of this software, and the remedy."""
    for name, version in software.items():
        if worker.software[name] != version:
            yield (
                f"workers have {name} {worker.software[name]}, and the process that asks them has "
                f"{version}: install the same there"
            )
    if not worker.in_memory:
        yield "workers would write rows to their disks: start them with --memory-limit 0"
    if not worker.without_page:
        yield (
            "workers show on a web page how much they hold: set "
            "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES='[]' and "
            "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES='[]' there and at the scheduler"
        )

"""Recurring releases on a Prefect server: a work pool of processes, and one deployment for each dataset."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import VersionInfo
from prefect.deployments.runner import DeploymentApplyError, RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists
from prefect.schedules import Cron
from prefect.settings import get_current_settings
from prefect.types.entrypoint import EntrypointType
from prefect.workers.process import ProcessWorker

from cloister import __version__
from cloister.errors import CloisterError, InputError
from tasks.home import Home
from tasks.orders import Options
from tasks.schedules import Schedule

POOL = "cloister"
VERSION = VersionInfo(type="prefect:simple", version=__version__)
ENGINE = "import runpy, flows.release; runpy.run_module('prefect.engine', run_name='__main__')"
"""Prefect looks for a flow in the working directory first; one imported before is safe from a folder of its name."""

EXAMPLE_URL = "http://127.0.0.1:4200/api"


@dataclass(frozen=True)
class Recurring:
    """A release that is made again and again: its name on the server, what the flow is called with, and when."""

    name: str
    parameters: dict[str, Any]
    schedule: Schedule


def release_parameters(spec: Path, options: Options, by: str) -> dict[str, Any]:
    """What the release flow is called with on each run; paths are absolute.

    There is no folder to copy to, which the second run would find full: each release keeps its files in the home.
    """
    return {
        "spec": str(spec.absolute()),
        "method": options.method,
        "epsilon": options.epsilon,
        "delta": options.delta,
        "rows": options.rows,
        "data": str(options.data.absolute()) if options.data else None,
        "csv": options.csv,
        "evaluate": options.evaluate,
        "by": by,
    }


def require_server() -> str:
    """The URL of the Prefect server that is configured, which answers.

    Raises:
        InputError: none is configured, or it does not answer.
    """
    url = get_current_settings().api.url
    how = f"start one with prefect server start and set PREFECT_API_URL, e.g. to {EXAMPLE_URL}"
    if not url:
        raise InputError(f"a recurring release needs a Prefect server, and none is configured; {how}")
    with get_client(sync_client=True) as client:
        if client.api_healthcheck():
            raise InputError(f"no Prefect server answers at {url}; {how}")
    return url


def register(flow: Flow[..., Any], recurring: Recurring, home: Home) -> UUID:
    """Make the deployment of a recurring release, or update the one of the same name; the id it has on the server.

    Runs start in the working directory of this process, with its interpreter and its home.

    Raises:
        InputError: a setting holds a password, or the work pool is of another type.
        CloisterError: the server refuses.
    """
    variables = {
        "command": shlex.join([sys.executable, "-P", "-c", ENGINE]),
        "working_dir": str(Path.cwd()),
        "env": environment_of(home),
    }
    with _explained():
        _require_pool()
        return asyncio.run(_deployment(flow, recurring, variables).aapply(version_info=VERSION))


def worker_command(server: str) -> str:
    """What starts a worker that runs the recurring releases of this installation."""
    prefect = Path(sys.executable).with_name("prefect")
    return f"PREFECT_API_URL={shlex.quote(server)} " + shlex.join([str(prefect), "worker", "start", "--pool", POOL])


def environment_of(home: Home) -> dict[str, str]:
    """The settings of this installation, so that a scheduled run charges the same ledger and tells nobody else.

    Raises:
        InputError: one holds a password, which the server would keep.
    """
    settings = {
        "CLOISTER_HOME": str(home.folder),
        "CLOISTER_LEDGER": home.ledger,
        "MLFLOW_TRACKING_URI": home.tracking,
        "CLOISTER_REMOTE": home.remote,
    }
    for name, value in settings.items():
        _require_no_password(name, value)
    settings |= {"PREFECT_API_URL": str(get_current_settings().api.url), "PYTHONWARNINGS": "ignore"}
    home.configure(settings)
    return settings


def _require_no_password(name: str, value: str) -> None:
    parts = urlsplit(value)
    if parts.password or "password=" in parts.query:
        raise InputError(
            f"{name} holds a password, which the Prefect server would keep; leave it out and put it where the client "
            "of that service looks for one, such as ~/.pgpass"
        )


def _deployment(flow: Flow[..., Any], recurring: Recurring, variables: dict[str, Any]) -> RunnerDeployment:
    schedule = recurring.schedule
    return RunnerDeployment.from_flow(
        flow,
        recurring.name,
        schedule=Cron(schedule.cron, timezone=schedule.timezone),
        concurrency_limit=1,
        parameters=recurring.parameters,
        tags=["release"],
        work_pool_name=POOL,
        job_variables=variables,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def _require_pool() -> None:
    """Make the work pool if there is none."""
    template = ProcessWorker.get_default_base_job_template()
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(WorkPoolCreate(name=POOL, type=ProcessWorker.type, base_job_template=template))
        except ObjectAlreadyExists:
            _require_processes(client)


def _require_processes(client: SyncPrefectClient) -> None:
    kind = client.read_work_pool(POOL).type
    if kind != ProcessWorker.type:
        raise InputError(
            f"the work pool '{POOL}' is of type {kind}, and releases run as processes beside their home; rename it, "
            f"or delete it with prefect work-pool delete {POOL}"
        )


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (DeploymentApplyError, httpx.HTTPError) as error:
        raise CloisterError(f"the Prefect server did not take the deployment: {error}") from None

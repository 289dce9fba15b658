"""What Prefect's server has recorded: its answers come in pages of at most 200."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

PAGE = 200


async def every(read, **filters) -> AsyncIterator:
    """What a reading method of Prefect's client finds on all pages."""
    for page in count():
        entries = await read(**filters, limit=PAGE, offset=page * PAGE)
        for one in entries:
            yield one
        if len(entries) < PAGE:
            return


async def task_runs_of(release: str) -> list:
    """The task runs of the flow run that made a release.

    Tasks that tests run after its end are none of it, nor are those of flows that publish it.
    """
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        made = [run async for run in every(client.read_task_runs)]
        flows = {run.flow_run_id for run in made if run.name == f"certify {release}"}
        ends = {flow: (await client.read_flow_run(flow)).end_time for flow in flows}
        return [
            run
            for run in made
            if run.flow_run_id in flows and run.start_time <= ends[run.flow_run_id]
        ]


def steps_of(release: str) -> dict[str, dict[str, Any]]:
    """The steps of a release, by the names of their functions, and those whose results they took.

    As the server draws them.
    """
    from prefect.client.orchestration import get_client

    made = asyncio.run(task_runs_of(release))
    (flow,) = {run.flow_run_id for run in made}
    with get_client(sync_client=True) as client:
        graph = dict(client.request("GET", f"/flow_runs/{flow}/graph-v2").json()["nodes"])
    functions = {str(run.id): run.task_key.split("-")[0] for run in made}
    assert len(made) == len(set(functions.values())), "a step ran twice"
    return {
        functions[str(run.id)]: {
            "name": run.name,
            "runs": run.run_count,
            "completed": run.state.is_completed(),
            "follows": [functions[each["id"]] for each in graph[str(run.id)]["parents"]],
        }
        for run in made
    }

"""An object store on this machine, with an empty bucket."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def bucket_of_tables() -> Iterator[Any]:
    """The bucket ``tables``, whose place and keys are those of the environment meanwhile."""
    import boto3

    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, text in {
            "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
            "AWS_ACCESS_KEY_ID": "ours",
            "AWS_SECRET_ACCESS_KEY": "ours",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, text)
        made = boto3.resource("s3").Bucket("tables")
        made.create()
        yield made
        made.objects.delete()
        made.delete()
    server.stop()

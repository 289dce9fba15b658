"""The command of the officer's page."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from cloister.errors import InputError
from cloister.flows.cli.options import Json, example
from cloister.schema.sources import files_and_urls
from cloister.tasks.home.home import Home

if TYPE_CHECKING:
    from cloister.flows.page.views import Sheets

_INTERVAL = 10.0
"""Seconds between two checks for events to send."""


def add_page_command(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(
        epilog=example(
            "cloister page",
            "cloister page --homes homes.yaml",
            "cloister page --host 0.0.0.0 --name page.example.org --certificate tls.pem "
            "--private-key tls.key",
        )
    )(page)


def page(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 for any.")] = 8642,
    homes: Annotated[
        Path | None,
        typer.Option(
            help="Several homes: a YAML file of names, each with the variables of its home, as "
            "CLOISTER_HOME and CLOISTER_LEDGER. By default the home of this command."
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name of the page in browsers; may be repeated."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="The certificate of TLS.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="The key of TLS.")] = None,
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy", help="A proxy in front ends TLS, and may hand over tokens (OIDC)."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show budgets, releases and the ledger in a browser, to decide there; until it is interrupted.

    On this machine alone, whoever has the key that is printed acts as you. Elsewhere visitors log
    in by a token of cloister people token, or an identity provider's that a proxy hands over, and
    TLS is asked for. Each visit is noted in the home, in visits/.
    """
    import uvicorn

    from cloister.flows.cli.console import say, show_json
    from cloister.flows.page.app import page_app
    from cloister.flows.page.visitors import Sessions

    local = files_and_urls.is_loopback(host)
    if not (local or behind_proxy or (certificate and private_key)):
        raise InputError(
            f"{host} is reached from elsewhere: give --certificate and --private-key, or "
            "--behind-proxy where a proxy ends TLS"
        )
    if behind_proxy and not name:
        raise InputError("give the --name that browsers know the page by, as the proxy passes it")
    key = secrets.token_urlsafe(24) if local and not behind_proxy else None
    sheets = sheets_of(homes)
    names = ["127.0.0.1", "localhost", "[::1]", host, *(name or ())]
    config = uvicorn.Config(
        page_app(sheets, Sessions(key), names),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,  # seconds: people read a sheet before they ask for another
        proxy_headers=behind_proxy,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    socket.listen()  # so that a browser that is quicker than the page waits for it
    scheme = "https" if certificate else "http"
    shown = f"[{host}]" if ":" in host else host
    login = f"{scheme}://{shown}:{socket.getsockname()[1]}/login"
    address = f"{login}?key={key}" if key else login
    if as_json:
        show_json({"address": address})
    else:
        say(address)
    sys.stdout.flush()
    Thread(target=_notify, args=([sheet.home for sheet in sheets.values()],), daemon=True).start()
    server.run([socket])


def _notify(homes: Sequence[Home]) -> None:
    """Notify the subscribers of some homes, as long as this process runs."""
    from cloister.flows.serving import notify

    while True:
        for home in homes:
            notify(home)
        time.sleep(_INTERVAL)


def sheets_of(homes: Path | None) -> dict[str, Sheets]:
    """The sheets of each home by its name; that of this command is called ``home``.

    Raises:
        InputError: the file is not names with variables of homes.
    """
    import yaml

    from cloister.flows.page.views import Sheets

    if homes is None:
        return {"home": Sheets("home", Home.current())}
    remedy = "write a line NAME: {CLOISTER_HOME: FOLDER} for each home"
    try:
        named = yaml.safe_load(homes.read_text(encoding="utf-8"))
        named_homes = {
            str(name): {str(k): str(v) for k, v in variables.items()}
            for name, variables in named.items()
        }
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        raise InputError(f"{homes} cannot be read as homes: {remedy}") from None
    for name, variables in named_homes.items():
        if "CLOISTER_HOME" not in variables or not name.replace("-", "").isalnum():
            raise InputError(f"{homes} names no home of a plain name with '{name[:50]}': {remedy}")
    return {
        name: Sheets(name, Home.current({**variables})) for name, variables in named_homes.items()
    }

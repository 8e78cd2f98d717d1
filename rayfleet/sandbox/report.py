"""``sandbox.status``: what of the sandbox runs, as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict

from rayfleet.console import Console
from rayfleet.sandbox.services import Sandbox


def show_status(sandbox: Sandbox, console: Console, *, as_json: bool) -> None:
    """Print the engine, the API, and one row per container."""
    rows = sandbox.rows()
    api = sandbox.api()
    running = api.running()
    if as_json:
        console.json(
            {
                "id": sandbox.place.id,
                "up": sandbox.place.endpoints.is_file(),
                "engine": sandbox.engine_version(),
                "artifact_registry": {"address": api.address(), "running": running},
                "containers": [asdict(row) for row in rows],
            }
        )
        return
    up = "up" if sandbox.place.endpoints.is_file() else "down (start it: invoke sandbox.up)"
    console.say(f"sandbox {sandbox.place.id} is {up}; engine {sandbox.engine_version()}")
    state = "running" if running else "stopped"
    body = [("artifact registry API", "api", state, "", api.address())] if api.address() else []
    for row in rows:
        where = f"127.0.0.1:{row.port}" if row.port else row.address
        body.append((row.name, row.role or row.kind, row.state, row.cluster or row.region, where))
    if body:
        console.table(("name", "kind", "state", "cluster or region", "address"), body)

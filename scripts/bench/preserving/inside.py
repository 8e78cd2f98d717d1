"""A program beside the head: it fills it with jobs, and reads what it has of each.

    inside.py ready                 wait until the head takes jobs
    inside.py submit FILE           submit the jobs in FILE as their owners did
    inside.py running ID...         wait until these are RUNNING
    inside.py facts                 every field of every job, from Ray's own store

It shares nothing with what it measures: Ray's SDK submits, and the store is read directly.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

DASHBOARD = "http://127.0.0.1:8265"
GCS = "127.0.0.1:6379"
SECONDS = 120.0
RECORD = b"_ray_internal_job_info_"
ACTOR = "_ray_internal_job_actor_"
# Given to every job that names no place, by Ray itself.
OWN_LABEL = "ray.io/node-id"


def ready() -> bool:
    """Wait for the dashboard, and for the agent that starts jobs."""
    import urllib.request

    from ray._raylet import GcsClient

    def answers() -> bool:
        with urllib.request.urlopen(f"{DASHBOARD}/api/version", timeout=5):  # noqa: S310
            pass
        client = GcsClient(address=GCS)
        return bool(client.internal_kv_keys(b"DASHBOARD_AGENT_ADDR_NODE_ID_PREFIX", b"dashboard"))

    wait_for(answers, "the head")
    return True


def submit(path: str) -> int:
    """Submit the jobs, in order; how many they are."""
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(DASHBOARD)
    jobs = json.loads(Path(path).read_text())
    for job in jobs:
        client.submit_job(**job)
    return len(jobs)


def running(*names: str) -> bool:
    """Wait until each job has started."""
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(DASHBOARD)

    def started() -> bool:
        return all(client.get_job_status(name) == "RUNNING" for name in names)

    wait_for(started, f"the start of {', '.join(names)}")
    return True


def facts() -> dict[str, Any]:
    """What the store has of each job, by submission id; ``started`` orders them."""
    from ray._raylet import GcsClient

    client = GcsClient(address=GCS)
    selectors = label_selectors()
    found = {}
    for key in client.internal_kv_keys(RECORD, b"job"):
        record = json.loads(client.internal_kv_get(key, b"job"))
        name = key[len(RECORD) :].decode()
        env = json.loads(record.get("runtime_env_json") or "{}")
        found[name] = {
            "started": record["start_time"],
            "status": record["status"],
            "fields": {
                "submission_id": name,
                "entrypoint": record["entrypoint"],
                "metadata": record["metadata"],
                "env_vars": env.get("env_vars"),
                "working_dir": contents(client, env.get("working_dir")),
                "num_cpus": record["entrypoint_num_cpus"],
                "num_gpus": record["entrypoint_num_gpus"],
                "memory": record["entrypoint_memory"],
                "resources": record["entrypoint_resources"],
                "label_selector": selectors.get(name),
            },
        }
    return found


def label_selectors() -> dict[str, dict[str, str]]:
    """The label selectors of the jobs: only the actors that start them have those."""
    from ray._raylet import GcsClientOptions, GlobalStateAccessor
    from ray.core.generated.gcs_pb2 import ActorTableData

    options = GcsClientOptions.create(
        GCS, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True
    )
    tables = GlobalStateAccessor(options)
    tables.connect()
    actors = [ActorTableData.FromString(row) for row in tables.get_actor_table(None, None)]
    return {
        actor.name.removeprefix(ACTOR): {
            key: value for key, value in actor.label_selector.items() if key != OWN_LABEL
        }
        for actor in actors
        if actor.name.startswith(ACTOR)
    }


def contents(client: Any, uri: str | None) -> str | None:
    """A hash over names and bytes of the files of a package, however it was zipped."""
    packed = client.internal_kv_get(uri.encode(), None) if uri else None
    if packed is None:
        return None
    digest = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for name in sorted(archive.namelist()):
            digest.update(f"{name}\0{hashlib.sha256(archive.read(name)).hexdigest()}\n".encode())
    return digest.hexdigest()


def wait_for(probe: Callable[[], bool], what: str) -> None:
    """Ask until it is so, for two minutes at most."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            if probe():
                return
            why = "not yet"
        except (OSError, RuntimeError) as error:
            why = str(error)
        if time.monotonic() > deadline:
            sys.exit(f"waited {SECONDS:.0f} s for {what}: {why}")
        time.sleep(0.2)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))

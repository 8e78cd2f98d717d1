"""What runs on the head: it reads the jobs and their packages out of Ray's own store, the GCS.

It is sent to the head behind locate.py, which starts it in the Python of the cluster's own Ray
with ``WHERE PORT LIMIT look`` or ``WHERE PORT LIMIT fetch URI...``. PORT is the dashboard's.
LIMIT is in seconds, for the look and for each package; SIGALRM ends the process then, even
inside Ray. The answer on stdout is MARK and then frames: one line of JSON each, followed by as
many bytes as its ``size`` says. ``end`` is the last frame of a whole answer, ``error`` of any
other.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from importlib import import_module
from typing import Any, BinaryIO

# As in locate.py, which is not there on the head.
MARK = b"\0rayfleet-reader-1\n"

RPC_SECONDS = 20
PACKAGE_SECONDS = 50
# Those that we know. A job in another state is told as one that has not ended.
ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
# In the order of an actor's life, so that one that moves on meanwhile is seen at least once.
LIVING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING")

SILENT = (4, 14)  # of gRPC: DEADLINE_EXCEEDED and UNAVAILABLE


class Failure(Exception):
    """Why there is no answer: ``reason`` is for programs, the text for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Layout:
    """Where this Ray keeps its jobs and what it calls their parts, by its own modules.

    Nothing of it is written down here: a Ray that has it elsewhere would look like one without
    jobs.
    """

    def __init__(self) -> None:
        try:
            common = import_module("ray.dashboard.modules.job.common")
            constants = import_module("ray._private.ray_constants")
            storage = common.JobInfoStorageClient
            self.jobs = _plain_prefix(storage.JOB_DATA_KEY)
            self.job_namespace = bytes(constants.KV_NAMESPACE_JOB)
            self.supervisors = _plain_prefix(common.JOB_ACTOR_NAME_TEMPLATE)
            self.supervisor_namespace = str(common.SUPERVISOR_ACTOR_RAY_NAMESPACE)
            self.submission = str(common.JOB_ID_METADATA_KEY)
            self.dashboard = str(constants.DASHBOARD_ADDRESS).encode()
            self.dashboard_namespace = bytes(constants.KV_NAMESPACE_DASHBOARD)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            text = f"this Ray keeps its jobs in a way that rayfleet does not know: {error}"
            raise Failure("strange", text) from error


def _plain_prefix(template: str) -> str:
    prefix, found, rest = template.partition("{job_id}")
    if not (prefix and found) or rest:
        raise ValueError(f"a name of the form {template!r}")
    return prefix


class Store:
    """The GCS through the Ray that is installed here. A new one for every look."""

    def __init__(self, address: str) -> None:
        try:
            raylet = import_module("ray._raylet")
            self.types = import_module("ray.core.generated.gcs_pb2")
        except ImportError as error:
            raise Failure("no-python", f"its Python cannot import Ray: {error}") from error
        self.layout = Layout()
        options = raylet.GcsClientOptions.create(
            address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True
        )
        self.kv = raylet.GcsClient(address=address)
        self.tables = raylet.GlobalStateAccessor(options)
        if not self.tables.connect():
            raise Failure("refused", f"the GCS at {address} does not let us in")

    def records(self) -> dict[str, bytes]:
        """What the GCS keeps of every submitted job, by submission id."""
        prefix, namespace = self.layout.jobs.encode(), self.layout.job_namespace
        keys = self.kv.internal_kv_keys(prefix, namespace, timeout=RPC_SECONDS)
        found = {}
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            found.update(self.kv.internal_kv_multi_get(some, namespace, timeout=RPC_SECONDS))
        return {os.fsdecode(key[len(prefix) :]): value for key, value in found.items()}

    def package(self, uri: str) -> bytes | None:
        """The bytes of a package; None when the GCS does not have it."""
        value = self.kv.internal_kv_get(os.fsencode(uri), None, timeout=PACKAGE_SECONDS)
        return None if value is None else bytes(value)

    def actors(self, state: str) -> list[Any]:
        """The actors in ``state``."""
        rows = self.tables.get_actor_table(None, state)
        return [self.types.ActorTableData.FromString(row) for row in rows]

    def drivers(self) -> list[Any]:
        """Every driver that ever connected."""
        rows = self.tables.get_job_table(
            skip_submission_job_info_field=True, skip_is_running_tasks_field=True
        )
        return [self.types.JobTableData.FromString(row) for row in rows]

    def dashboard_port(self) -> str:
        """The port of the dashboard, running or not; empty on a head that is just starting."""
        key, namespace = self.layout.dashboard, self.layout.dashboard_namespace
        address = self.kv.internal_kv_get(key, namespace, timeout=RPC_SECONDS)
        return os.fsdecode(address or b"").rpartition(":")[2]

    def heads(self) -> list[str]:
        """The ids of the head's node, of this start and of earlier ones."""
        nodes = self.kv.get_all_node_info(timeout=RPC_SECONDS)
        return [key.hex() for key, node in nodes.items() if node.is_head_node]


def look(store: Store, where: dict[str, str]) -> dict[str, Any]:
    """Everything that runs, as one document."""
    import ray

    live: list[dict[str, Any]] = []
    ended = {}
    # The records first: a job that is new in between is then unknown, and not half known.
    for name, raw in store.records().items():
        # Ray writes ASCII. Anything else is passed on as what it is: not readable.
        text = raw.decode() if raw.isascii() else ""
        status, error = _status(text)
        if status in ENDED:
            ended[name] = {"status": status, "error_type": error}
        else:
            live.append({"id": name, "record": text})
    actors = [row for state in LIVING for row in store.actors(state)]
    layout = store.layout
    supervisors = _supervisors(layout, actors)
    if any(job["id"] not in supervisors for job in live):
        supervisors = {**_supervisors(layout, store.actors("DEAD")), **supervisors}
    for job in live:
        job["supervisor"] = supervisors.get(job["id"])
    # An actor may have been seen in two states.
    others = {row.actor_id: row for row in actors if not _supervised(layout, row)}
    return {
        "session": where["session"],
        "ray_version": ray.__version__,
        "heads": store.heads(),
        "live": live,
        "ended": ended,
        "actors": [_actor(row) for row in others.values() if row.is_detached],
        "drivers": [_driver(layout, row) for row in store.drivers() if not row.is_dead],
    }


def _status(record: str) -> tuple[str, str]:
    try:
        found = json.loads(record)
        return str(found["status"]), str(found.get("error_type") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", ""


def _supervised(layout: Layout, row: Any) -> str:
    prefix = layout.supervisors
    if row.ray_namespace == layout.supervisor_namespace and row.name.startswith(prefix):
        return str(row.name[len(prefix) :])
    return ""


def _supervisors(layout: Layout, rows: list[Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row.end_time):
        if name := _supervised(layout, row):
            selector = dict(row.label_selector)
            # An id that was deleted and used again has had several; 0 is one that still lives.
            found[name] = {"label_selector": selector, "end_time": row.end_time}
    return found


def _actor(row: Any) -> dict[str, Any]:
    module = row.function_descriptor.python_function_descriptor.module_name
    return {
        "name": row.name,
        "class": row.class_name,
        "namespace": row.ray_namespace,
        "module": module,
    }


def _driver(layout: Layout, row: Any) -> dict[str, Any]:
    return {
        "job_id": row.job_id.hex(),
        "entrypoint": row.entrypoint,
        "namespace": row.config.ray_namespace,
        "submission_id": row.config.metadata.get(layout.submission, ""),
        "address": row.driver_ip_address,
        "pid": row.driver_pid,
    }


# Answers.


def emit(out: BinaryIO, kind: str, body: bytes = b"", **fields: str) -> None:
    """Write one frame."""
    digest = hashlib.sha256(body).hexdigest()
    header = {"kind": kind, **fields, "size": len(body), "sha256": digest}
    out.write(json.dumps(header).encode() + b"\n")
    out.write(body)
    out.flush()


def answer(out: BinaryIO, where: dict[str, str], words: list[str]) -> None:
    """Do what was asked and write it down."""
    port, limit, mode, uris = words[0], int(words[1]), words[2], words[3:]
    signal.alarm(limit)
    store = _opened(where)
    # No process told the port: the GCS of a head that is just starting may be another's.
    if not where["port"] and store.dashboard_port() != port:
        raise Failure("no-ray", f"no Ray there is known to have its dashboard at port {port}")
    if mode == "look":
        emit(out, "look", json.dumps(look(store, where)).encode())
    for uri in uris:
        signal.alarm(limit)
        content = store.package(uri)
        if content is None:
            emit(out, "absent", uri=uri)
        else:
            emit(out, "package", content, uri=uri)
    emit(out, "end")


def _opened(where: dict[str, str]) -> Store:
    try:
        return Store(where["address"])
    except Failure:
        raise
    except Exception as error:
        raise _failure(error, "refused") from error


def _failure(error: Exception, reason: str) -> Failure:
    silent = getattr(error, "rpc_code", None) in SILENT
    return Failure("silent" if silent else reason, _said(error))


def _said(error: Exception) -> str:
    # The first sentence; what follows in Ray's is advice for another situation.
    sentence = str(error).strip().partition("\n")[0].partition(". ")[0]
    return f"{type(error).__name__}: {sentence[:300]}"


def _output() -> BinaryIO:
    """Stdout for us alone: whatever Ray prints goes to stderr."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    out.write(MARK)
    return out


def main(words: list[str]) -> int:
    """Answer; 0 when it is a whole answer, 3 for an error that is told in a frame."""
    out = _output()
    try:
        answer(out, json.loads(words[0]), words[1:])
    except BrokenPipeError:
        return 3
    except Failure as failure:
        emit(out, "error", reason=failure.reason, text=str(failure))
        return 3
    except Exception as error:
        told = _failure(error, "failed")
        emit(out, "error", reason=told.reason, text=str(told))
        return 3
    return 0


if __name__ == "__main__":
    # Ray's threads have nothing to finish.
    os._exit(main(sys.argv[1:]))

"""The reader on a real head, over a real sshd: what Ray's own lists lack, and who may ask."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rayfleet.cluster.head import Head
from rayfleet.console import Console
from rayfleet.errors import RayfleetError, Unreachable
from rayfleet.job.client import JobClient
from rayfleet.job.model import JobStatus
from rayfleet.job.package import Package
from rayfleet.job.preserve import Preserver
from rayfleet.job.snapshot import reader
from rayfleet.job.snapshot.locate import find
from rayfleet.job.snapshot.source import HeadSource, Look
from rayfleet.job.snapshot.taker import ONLY_LISTED, take_backup
from rayfleet.job.vault.model import Backup, LostKind, SavedJob
from rayfleet.job.vault.store import Vault
from rayfleet.project import Project
from rayfleet.waiting import wait_until
from tests.support.job_cluster import JobCluster
from tests.support.other_ray import NAMESPACE, PREFIX, other_ray
from tests.support.rollout_world import CLUSTER

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TOKEN = "s3cret-" + "x" * 32
SECRET = "hunter2-in-an-env-var"
FOREVER = "sleep 600"

# Sends one command to the head's own store, as nothing of Ray's tools can.
STORE = """
import sys
from ray._raylet import GcsClient
store = GcsClient(address=sys.argv[1])
"""
FORGET = STORE + "print(store.internal_kv_del(sys.argv[2].encode(), False, None))"
HISTORY = (
    STORE
    + """
import json
PREFIX = b"_ray_internal_job_info_old-"
record = json.dumps({"status": "SUCCEEDED", "entrypoint": "true", "start_time": 1}).encode()
for number in range(int(sys.argv[2])):
    store.internal_kv_put(PREFIX + b"%05d" % number, record, True, b"job")
if sys.argv[2] == "0":
    store.internal_kv_del(PREFIX, True, b"job")
"""
)
ELSEWHERE = (
    STORE
    + """
sys.exit(store.internal_kv_get(sys.argv[2].encode(), sys.argv[3].encode()) is None)
"""
)
SELECTOR = """
import sys
from ray._raylet import GcsClientOptions, GlobalStateAccessor
from ray.core.generated.gcs_pb2 import ActorTableData
options = GcsClientOptions.create(
    sys.argv[1], None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True
)
tables = GlobalStateAccessor(options)
tables.connect()
for row in map(ActorTableData.FromString, tables.get_actor_table(None, None)):
    if row.name == "_ray_internal_job_actor_" + sys.argv[2]:
        print(dict(row.label_selector))
"""
DRIVER = """
import sys, ray
from ray.util.queue import Queue
ray.init(address=sys.argv[1], namespace="mine", log_to_driver=False)

@ray.remote(num_cpus=0)
class Cache:
    def ready(self):
        return True

cache = Cache.options(name="cache", lifetime="detached").remote()
bound = Cache.options(name="bound-to-its-driver").remote()
ray.get([cache.ready.remote(), bound.ready.remote()])
print("ready", flush=True)
sys.stdin.read()
"""


def start(folder: Path, **changes: Any) -> JobCluster:
    started = JobCluster(folder=folder / "sshd", **changes)
    try:
        started.start()
    except BaseException:
        started.stop()
        raise
    return started


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobCluster]:
    """A head that wants a token, which the reader has to find there."""
    started = start(tmp_path_factory.mktemp("cluster"), token=TOKEN)
    yield started
    started.stop()


@pytest.fixture
def source(cluster: JobCluster) -> Iterator[HeadSource]:
    """The head, read over SSH."""
    with reading(cluster) as found:
        yield found


@contextmanager
def reading(cluster: JobCluster, **options: Any) -> Iterator[HeadSource]:
    with cluster.open_head() as head:
        yield HeadSource(head, dashboard_port=cluster.port, **options)


@contextmanager
def submitted(cluster: JobCluster, *jobs: SavedJob) -> Iterator[None]:
    """These jobs, until the block ends; one that waits for resources stays for ever."""
    client = cluster.jobs()
    try:
        for job in jobs:
            client.submit(job)
        yield
    finally:
        for job in jobs:
            client.stop(job.submission_id)


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """These processes neither run nor end."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def on_head(cluster: JobCluster, program: str, *words: str) -> str:
    """Run ``program`` as a part of the cluster; its first argument is the address of the GCS."""
    ran = subprocess.run(
        [sys.executable, "-c", program, gcs(cluster), *words],
        env=environment(cluster),
        capture_output=True,
        check=True,
        text=True,
    )
    return ran.stdout.strip()


def gcs(cluster: JobCluster) -> str:
    return find(str(cluster.port)).address


def environment(cluster: JobCluster) -> dict[str, str]:
    mode = {"RAY_AUTH_MODE": "token"} if cluster.token else {"RAY_AUTH_MODE": "disabled"}
    return dict(os.environ) | mode | {"RAY_AUTH_TOKEN": cluster.token}


def bearer(cluster: JobCluster) -> dict[str, str]:
    return {"Authorization": f"Bearer {cluster.token}"}


def make_job(name: str, **changes: Any) -> SavedJob:
    """A job with what Ray makes of fields that were not given."""
    given: dict[str, Any] = {
        "submission_id": name,
        "status": JobStatus.PENDING,
        "started": 0,
        "entrypoint": FOREVER,
        "num_cpus": 0,
        "num_gpus": 0,
        "memory": 0,
    }
    return SavedJob(**(given | changes))


def upload(cluster: JobCluster, folder: Path, name: str, content: bytes) -> bytes:
    path = folder / name
    path.write_bytes(content)
    package = Package(name=name, path=path, size=len(content), files=1)
    assert cluster.jobs().upload(package)
    return content


def zipped(**files: str) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return raw.getvalue()


def settled(source: HeadSource, *names: str) -> Look:
    """A look at which Ray has a supervisor for each of these jobs."""

    def probe() -> Look | None:
        look = source.look()
        found = {job.submission_id for job in look.jobs if not job.missing}
        return look if found.issuperset(names) else None

    return wait_until(probe, what=f"the supervisors of {names}", timeout=150)


def backed_up(
    source: HeadSource,
    vault: Vault,
    client: JobClient,
    narrate: Callable[[str], None] = lambda text: None,
) -> Backup:
    return take_backup(
        source,
        vault,
        cluster="us-east5",
        identity="x",
        infrastructure=lambda *_: False,
        dashboard=client.list,
        narrate=narrate,
    )


def impatient(cluster: JobCluster) -> JobClient:
    token = cluster.token or None
    return JobClient(
        cluster.ray.http(), cluster="us-east5", token=token, patience=False, seconds=2.0
    )


def of(look: Look, name: str) -> SavedJob:
    return next(job for job in look.jobs if job.submission_id == name)


def test_every_field_comes_back_of_a_job_that_waits_for_resources(
    cluster: JobCluster, source: HeadSource
) -> None:
    """The jobs API drops the four resources, has no label selector, and no job id while it waits;
    the supervisor's runtime_env has more in it than was asked for."""
    job = make_job(
        "waits-for-all",
        entrypoint='python -c \'print("a  b")\' "$A" # ünï',
        metadata={"owner": "me@here", "note": ""},
        runtime_env={
            "env_vars": {"API_KEY": SECRET, "EMPTY": ""},
            "pip": {"packages": ["nothing==1.0"], "pip_check": False},
            "config": {"setup_timeout_seconds": 30},
        },
        num_cpus=0.25,
        num_gpus=1,
        memory=2**30,
        resources={"half": 0.5, "TPU-v4-8-head": 1},
        label_selector={"zone": "in(a,b)", "spot": "!true"},
    )
    with submitted(cluster, job):
        found = of(settled(source, job.submission_id), job.submission_id)
        assert replace(found, started=0) == job
        assert found.started == cluster.jobs().get(job.submission_id).started
        assert isinstance(found.num_gpus, int)
        shown = cluster.ray.http().request("GET", "/api/jobs/", headers=bearer(cluster)).json()
        row = next(row for row in shown if row["submission_id"] == job.submission_id)
        assert not any(key.startswith("entrypoint_") for key in row)


def test_a_job_that_asks_for_nothing_comes_back_without_the_node_that_ray_adds(
    cluster: JobCluster, source: HeadSource
) -> None:
    job = make_job("plain")
    with submitted(cluster, job):
        found = of(settled(source, "plain"), "plain")
        assert replace(found, started=0, status=JobStatus.PENDING) == job
        selector = on_head(cluster, SELECTOR, "plain")
        assert selector.startswith("{'ray.io/node-id': ")


def test_every_byte_of_every_package_comes_back(
    cluster: JobCluster, source: HeadSource, tmp_path: Path
) -> None:
    """The jobs API says 200 for a package, with no bytes in it."""
    contents = {
        f"gcs://{name}": upload(cluster, tmp_path, name, content)
        for name, content in {
            "_ray_pkg_work.zip": zipped(**{"x.py": "", "ignored.log": "kept"}),
            "_ray_pkg_module.zip": zipped(**{"pkg/__init__.py": ""}),
            "wheel-1.0-py3-none-any.whl": os.urandom(3_000_000),
        }.items()
    }
    (tmp_path / "got").mkdir()
    found = source.fetch([*contents, "gcs://never.zip"], tmp_path / "got")
    assert {uri: path.read_bytes() for uri, path in found.items()} == contents
    url = "/api/packages/gcs/_ray_pkg_work.zip"
    answer = cluster.ray.http().request("GET", url, headers=bearer(cluster))
    assert (answer.status, answer.data) == (200, b"")


def test_a_job_that_has_ended_is_known_as_that(cluster: JobCluster, source: HeadSource) -> None:
    client = cluster.jobs()
    for name, command in {"good": "true", "bad": "exit 3"}.items():
        client.submit(make_job(name, entrypoint=command))
    wait_until(lambda: all(client.get(n).ended for n in ("good", "bad")), what="ends", timeout=150)
    look = source.look()
    assert look.ended["good"] is JobStatus.SUCCEEDED
    assert look.ended["bad"] is JobStatus.FAILED
    assert not {job.submission_id for job in look.jobs} & {"good", "bad"}


def test_a_history_longer_than_rays_state_api_hides_no_job(
    cluster: JobCluster, source: HeadSource
) -> None:
    """The state API ends its lists at 10 000 rows."""
    job = make_job("after-ten-thousand", resources={"none": 1})
    with submitted(cluster, job):
        on_head(cluster, HISTORY, "10001")
        try:
            look = source.look()
        finally:
            on_head(cluster, HISTORY, "0")
    assert len([name for name in look.ended if name.startswith("old-")]) == 10_001
    assert of(look, job.submission_id).entrypoint == FOREVER


def test_a_dashboard_that_hangs_does_not_keep_the_jobs_from_being_saved(
    cluster: JobCluster, source: HeadSource, tmp_path: Path
) -> None:
    """Marin #1701: a broken dashboard is why somebody restarts a head."""
    content = upload(cluster, tmp_path, "_ray_pkg_hung.zip", zipped(a="b"))
    env = {"working_dir": "gcs://_ray_pkg_hung.zip"}
    job = make_job("under-a-hung-dashboard", resources={"none": 1}, runtime_env=env)
    vault, said = Vault(tmp_path / "vault"), list[str]()
    with submitted(cluster, job):
        settled(source, job.submission_id)
        with paused(*cluster.ray.pids("dashboard")):
            backup = backed_up(source, vault, impatient(cluster), said.append)
    assert said[0].startswith("the dashboard does not list the jobs")
    assert backup.complete
    assert job.submission_id in {saved.submission_id for saved in backup.jobs}
    (sha256,) = [one.sha256 for one in backup.packages if one.name == "_ray_pkg_hung.zip"]
    assert vault.package(sha256).read_bytes() == content
    assert vault.load(backup.id) == backup


def test_a_package_that_the_head_has_lost_is_absent_and_its_folder_is_not_taken_for_it(
    cluster: JobCluster, source: HeadSource, tmp_path: Path
) -> None:
    """The folder that Ray unpacked is where the job writes: nobody can tell what was in it."""
    upload(cluster, tmp_path, "_ray_pkg_lost.zip", zipped(a="b"))
    env = {"working_dir": "gcs://_ray_pkg_lost.zip"}
    job = make_job("has-its-folder", runtime_env=env, entrypoint=f"touch new; {FOREVER}")
    with submitted(cluster, job):
        log = cluster.jobs()
        wait_until(lambda: log.get("has-its-folder").status == "RUNNING", what="it", timeout=150)
        assert on_head(cluster, FORGET, "gcs://_ray_pkg_lost.zip") == "1"
        assert list(cluster.ray.folder.rglob("_ray_pkg_lost/new"))
        assert source.fetch(["gcs://_ray_pkg_lost.zip"], tmp_path) == {}


def test_drivers_and_detached_actors_are_told_apart_from_jobs(
    cluster: JobCluster, source: HeadSource
) -> None:
    job = make_job("a-job-has-a-driver-too", entrypoint=f"{sys.executable} -c 'import ray'")
    with (
        submitted(cluster, job),
        subprocess.Popen(
            [sys.executable, "-c", DRIVER, gcs(cluster)],
            env=environment(cluster) | {"RAY_LOG_TO_DRIVER": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as driver,
    ):
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        lost = source.look().unrestorable
        driver.communicate("")
    drivers = [one for one in lost if one.kind is LostKind.DRIVER]
    actors = [one for one in lost if one.kind is LostKind.ACTOR]
    assert [one.detail.split()[1] for one in drivers] == [str(driver.pid)]
    assert [(one.name, one.detail) for one in actors] == [("cache", "Cache in namespace mine")]


def test_what_the_login_shell_says_and_sets_changes_nothing(
    cluster: JobCluster, source: HeadSource
) -> None:
    """RAY_ADDRESS of the head's shell would lead a client of Ray elsewhere."""
    greeting = cluster.folder / ".bashrc"
    elsewhere = "export RAY_ADDRESS=127.0.0.1:1 RAY_AUTH_TOKEN=wrong RAY_AUTH_MODE=token"
    greeting.write_text(f"echo; printf 'Welcome!'; echo careful >&2; {elsewhere}\n")
    try:
        assert source.look().session.startswith("session_")
    finally:
        greeting.unlink()


def test_ray_in_a_container_is_asked_there(cluster: JobCluster) -> None:
    """On a VM of Google Cloud, Ray runs in the container that the config names."""
    folder = cluster.folder / "fake-docker"
    folder.mkdir()
    (folder / "docker").write_text(
        '#!/bin/sh\ncase "$1" in inspect) echo true;; *) echo "$@" | head -n 1 >> "$0.log";'
        ' shift 3; exec "$@";; esac\n'
    )
    (folder / "docker").chmod(0o755)
    (cluster.folder / ".bashrc").write_text(f"PATH={folder}:$PATH\n")
    try:
        address = cluster.sshd.address(cluster.name, container="my_ray")
        with Head.open(address) as head:
            source = HeadSource(head, dashboard_port=cluster.port)
            assert source.look().session.startswith("session_")
    finally:
        (cluster.folder / ".bashrc").unlink()
    said = (folder / "docker.log").read_text()
    assert said.startswith("exec -i my_ray sh -c ")


def test_a_gcs_that_does_not_answer_is_not_no_jobs(cluster: JobCluster) -> None:
    with (
        reading(cluster, limit=4) as source,
        paused(find(str(cluster.port)).pid),
        pytest.raises(Unreachable, match="said nothing for 4 s"),
    ):
        source.look()


def test_a_connection_that_breaks_ends_the_run_here_and_the_reader_there(
    cluster: JobCluster,
) -> None:
    errors: list[RayfleetError] = []

    def look() -> None:
        try:
            source.look()
        except RayfleetError as error:
            errors.append(error)

    with reading(cluster) as source, paused(find(str(cluster.port)).pid):
        thread = threading.Thread(target=look)
        thread.start()
        wait_until(lambda: readers(cluster), what="the reader on the head", timeout=90)
        for pid in readers(cluster):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            assert TOKEN.encode() not in words
        cluster.sshd.kill_sessions()
        thread.join(timeout=90)
        wait_until(lambda: not readers(cluster), what="the end of the reader", timeout=90)
    assert len(errors) == 1
    assert isinstance(errors[0], Unreachable)


def readers(cluster: JobCluster) -> list[int]:
    """The readers of this head that run now, in Ray's own Python."""
    session = next(cluster.ray.folder.glob("session_2*")).name
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if len(words) > 3 and words[1] == b"-c" and session.encode() in words[3]:
                found.append(int(entry.name))
    return found


def test_a_gcs_whose_port_no_process_tells_is_asked_for_it(cluster: JobCluster) -> None:
    where = find(str(cluster.port))._replace(port="")._asdict()

    def answer(port: int) -> bytes:
        words = [json.dumps(where), str(port), "30", "look"]
        program = [sys.executable, str(Path(reader.__file__)), *words]
        return subprocess.run(
            program, env=environment(cluster), capture_output=True, check=False
        ).stdout

    assert b'"kind": "end"' in answer(cluster.port)
    assert b'"reason": "no-ray"' in answer(1)


def test_a_lost_head_is_unreachable_and_a_new_one_has_another_session(tmp_path: Path) -> None:
    """A client of the store that outlives its head says WrongClusterID: none is kept."""
    cluster = start(tmp_path)
    try:
        with reading(cluster) as source:
            cluster.jobs().submit(make_job("gone"))
            before = source.look()
            assert [job.submission_id for job in before.jobs] == ["gone"]
            cluster.lose_head()
            with pytest.raises(Unreachable, match="could not read the jobs"):
                source.look()
            cluster.ray.start()
            after = source.look()
        assert after.jobs == ()
        assert after.session != before.session
    finally:
        cluster.stop()


def test_the_jobs_of_a_ray_that_keeps_them_elsewhere_are_found_there(tmp_path: Path) -> None:
    """Read where Ray 2.60 has them, its answer would be an empty and complete backup."""
    cluster = start(tmp_path, settings=other_ray(tmp_path / "site"))
    job = make_job("elsewhere", metadata={"owner": "me"}, resources={"none": 1})
    try:
        cluster.jobs().submit(job)
        on_head(cluster, ELSEWHERE, PREFIX + "elsewhere", NAMESPACE)
        with reading(cluster) as source:
            found = of(settled(source, "elsewhere"), "elsewhere")
        assert replace(found, started=0) == job
        # Now the reader looks where another Ray has them, which its dashboard does not.
        (tmp_path / "site" / "sitecustomize.py").write_text("")
        with reading(cluster) as source:
            assert source.look().jobs == ()
        project = Project(root=tmp_path, fleet_file=tmp_path / "f", state=tmp_path / "state")
        fleet: Any = SimpleNamespace(infrastructure_jobs=())
        blind = Preserver(
            project,
            fleet,
            Console(out=io.StringIO(), err=io.StringIO()),
            enter=lambda _: cluster.open_head(),
            port=cluster.port,
        ).backup(CLUSTER)
        assert blind.missing == (f"elsewhere: {ONLY_LISTED}",)
    finally:
        cluster.stop()


def test_a_store_that_survives_the_head_still_tells_every_field(tmp_path: Path) -> None:
    """Jobs of the head before are shown as they were, and their supervisors are dead."""
    storage = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(tmp_path / "gcs")}
    cluster = start(tmp_path, settings=storage)
    labels = {"zone": "in(a,b)"}
    waits = make_job("waits", num_cpus=0.5, resources={"none": 1}, label_selector=labels)
    try:
        with reading(cluster) as source:
            for job in (make_job("runs"), waits):
                cluster.jobs().submit(job)
            before = settled(source, "runs", "waits")
            cluster.replace_head()
            after = source.look()
        for name in ("runs", "waits"):
            same = {"status": JobStatus.PENDING}
            assert replace(of(after, name), **same) == replace(of(before, name), **same)
    finally:
        cluster.stop()

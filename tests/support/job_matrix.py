"""Jobs of every kind that a restart must give back, and how to see that it did.

Each job leaves a line in the shared bucket when it starts: the machine, and a word that it can
only say when it has all that it was submitted with. Then it waits for a file of its name.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rayfleet.waiting import wait_until
from tests.support.sandbox_head import SandboxHead

BUCKET = "/bucket/vault-e2e"
START_SECONDS = 150.0
SECRET = "hf_" + hashlib.sha256(b"vault-e2e").hexdigest()[:34]
PIP_WORD = "installed"

# What of a job's record in the GCS is its life and not what it was submitted with.
LIFE = frozenset(
    {
        *("status", "message", "error_type", "start_time", "end_time"),
        *("driver_agent_http_address", "driver_node_id", "driver_exit_code"),
    }
)


def archive(files: Mapping[str, str]) -> bytes:
    """A zip of ``files`` that nobody would make a second time: its bytes are worth keeping."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as zipped:
        zipped.comment = b"made by hand"
        for number, (name, text) in enumerate(files.items()):
            moment = (2001, 2, 3, 4, 5, 2 * number)
            zipped.writestr(zipfile.ZipInfo(name, moment), text.encode())
    return content.getvalue()


def sha256(content: bytes) -> str:
    """The hash of ``content`` in hex."""
    return hashlib.sha256(content).hexdigest()


def _sum(*texts: str) -> str:
    return sha256("".join(texts).encode())


@dataclass(frozen=True, kw_only=True, eq=False)
class Kind:
    """One kind of job. ``says`` is a piece of shell whose output must be ``word``.

    ``starts`` is False for a job that stays PENDING, ``fields`` are those of ``POST /api/jobs/``.
    """

    name: str
    says: str = "echo plain"
    word: str = "plain"
    before: str = ""
    starts: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entrypoint(self) -> str:
        """Leave a line in the bucket, then wait for a file there."""
        return (
            f"{self.before}echo $(hostname) $({self.says}) >> {BUCKET}/runs/{self.name}; "
            f"until [ -e {BUCKET}/stop/{self.name} ] || [ -e {BUCKET}/stop/all ]; do sleep 1; done"
        )

    def document(self) -> dict[str, Any]:
        """The body of its submission."""
        return {"submission_id": self.name, "entrypoint": self.entrypoint, **self.fields}


FILES = {
    ".gitignore": "*.log\nsecret/\n",
    "main.txt": "kept by git\n",
    "data.log": "dropped by git\n",
    "secret/deep.txt": "dropped by git, too\n",
}
PACKAGES = {
    "files": archive(FILES),
    "alpha": archive({"alpha/__init__.py": "WORD = 'al'\n"}),
    "beta": archive({"beta/__init__.py": "WORD = 'pha'\n"}),
    "never-unpacked": archive({"never.txt": "n" * 70_000}),
    "of-the-late": archive({"late.txt": "late\n"}),
    "of-the-ending": archive({"ending.txt": "ending\n"}),
}
WHEEL = archive(
    {
        "vaultmark.py": f"WORD = {PIP_WORD!r}\n",
        "vaultmark-1.0.dist-info/METADATA": (
            "Metadata-Version: 2.1\nName: vaultmark\nVersion: 1.0\n"
        ),
        "vaultmark-1.0.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        "vaultmark-1.0.dist-info/RECORD": "",
    }
)
WHEEL_NAME = "vaultmark-1.0-py3-none-any.whl"
# A source package whose build waits, so that its job is pending for as long as a test wants.
BUILD = f"""
import shutil, time
from pathlib import Path

def build_wheel(folder, *_):
    for _ in range(1200):
        if Path("{BUCKET}/go").exists():
            break
        time.sleep(0.5)
    shutil.copy("{BUCKET}/{WHEEL_NAME}", folder)
    return "{WHEEL_NAME}"
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "build"\nbackend-path = ["."]\n'


def uri(name: str) -> str:
    """The URI of one of PACKAGES, as Ray would call it."""
    return f"gcs://_ray_pkg_{sha256(PACKAGES[name])[:16]}.zip"


DRIVER = f"""
import os, ray, time
ray.init(address="auto", namespace="vault-e2e", log_to_driver=False)
@ray.remote(num_cpus=0)
class Keeper:
    def ready(self): return True
keeper = Keeper.options(name="keeper", lifetime="detached").remote()
print("connected", ray.get(keeper.ready.remote()), flush=True)
while not os.path.exists("{BUCKET}/stop/all"): time.sleep(1)
"""

_PIP = {"says": "python -c 'import vaultmark; print(vaultmark.WORD)'", "word": PIP_WORD}
ODD = """\
echo "first: $HOME 'single' \\"double\\" `echo back` ünïcode → 中 \\\\ end"
\t# a comment; && nothing
"""

RUNNING = Kind(name="running")
CLEANUP = Kind(name="cleanup", fields={"metadata": {"rayfleet_role": "infrastructure"}})
ENDING = Kind(name="ending", fields={"runtime_env": {"working_dir": uri("of-the-ending")}})
LATE = Kind(
    name="late",
    says="cat late.txt",
    word="late",
    fields={"runtime_env": {"working_dir": uri("of-the-late")}, "metadata": {"late": "yes"}},
)
SETTING_UP = Kind(
    name="setting-up",
    **_PIP,  # type: ignore[arg-type]
    starts=False,
    fields={
        "runtime_env": {
            "pip": {"packages": [f"{BUCKET}/slow"], "pip_check": False},
            "config": {"setup_timeout_seconds": 900},
        }
    },
)
NO_CAPACITY = Kind(
    name="no-capacity",
    starts=False,
    fields={
        "entrypoint_num_cpus": 64,
        "runtime_env": {"working_dir": uri("never-unpacked"), "env_vars": {"SEED": "7"}},
        "metadata": {"owner": "somebody@elsewhere"},
    },
)
KINDS = (
    RUNNING,
    NO_CAPACITY,
    SETTING_UP,
    Kind(
        name="working-dir",
        says="cat .gitignore main.txt data.log secret/deep.txt | sha256sum | cut -c1-64",
        word=_sum(*FILES.values()),
        fields={"runtime_env": {"working_dir": uri("files")}},
    ),
    Kind(
        name="py-modules",
        says="python -c 'import alpha, beta; print(alpha.WORD + beta.WORD)'",
        word="alpha",
        fields={"runtime_env": {"py_modules": [uri("alpha"), uri("beta")]}},
    ),
    Kind(
        name="pip",
        **_PIP,  # type: ignore[arg-type]
        fields={"runtime_env": {"pip": [f"{BUCKET}/{WHEEL_NAME}"]}},
    ),
    Kind(
        name="secret",
        says='printf %s "$HF_TOKEN" | sha256sum | cut -c1-64',
        word=_sum(SECRET),
        fields={"runtime_env": {"env_vars": {"HF_TOKEN": SECRET, "EMPTY": ""}}},
    ),
    Kind(
        name="metadata",
        fields={"metadata": {"größe": 'ä "q" \n \\ 中', "empty": "", "owner": "me@here"}},
    ),
    Kind(name="fraction", fields={"entrypoint_num_cpus": 0.25}),
    Kind(name="resource", fields={"entrypoint_resources": {"head_node": 0.125}}),
    Kind(name="memory", fields={"entrypoint_memory": 64 * 1024**2, "metadata": {}}),
    Kind(name="gpu", starts=False, fields={"entrypoint_num_gpus": 0.5, "runtime_env": {}}),
    Kind(
        name="labels",
        fields={"entrypoint_label_selector": {"ray.io/node-group": "!worker"}},
    ),
    Kind(
        name="elsewhere",
        starts=False,
        fields={
            "entrypoint_label_selector": {"example.org/zone": "nowhere"},
            "entrypoint_resources": {"head_node": 0.25},
        },
    ),
    Kind(name="odd-text", before=ODD),
    CLEANUP,
    ENDING,
)


def starting(kind: Kind) -> Kind:
    """``kind`` once what it waited for is there."""
    return replace(kind, starts=True)


def submit(head: SandboxHead, kinds: Iterable[Kind]) -> None:
    """Bring the packages of ``kinds`` to the head, then submit them in their order."""
    for kind in kinds:
        env = kind.fields.get("runtime_env", {})
        named = {env.get("working_dir"), *env.get("py_modules", ())}
        for name, content in PACKAGES.items():
            if uri(name) in named:
                head.put(uri(name).removeprefix("gcs://"), content)
        head.post(kind.document())


def prepare_bucket(head: SandboxHead) -> None:
    """Lay out what the jobs need in the bucket, and forget what earlier ones left there."""
    head.shell(f"rm -rf {BUCKET}; mkdir -p {BUCKET}/runs {BUCKET}/stop {BUCKET}/slow")
    files = {"slow/build.py": BUILD, "slow/pyproject.toml": PROJECT}
    for name, text in files.items():
        head.shell(f"cat > {BUCKET}/{name}", given=text.encode())
    head.shell(f"cat > {BUCKET}/{WHEEL_NAME}", given=WHEEL)


def runs(head: SandboxHead) -> dict[str, list[str]]:
    """The lines that each job has left, one for every time that it started."""
    script = f'cd {BUCKET}/runs && for name in $(ls); do sed "s|^|$name |" $name; done'
    found: dict[str, list[str]] = {}
    for line in head.shell(script).splitlines():
        name, _, text = line.partition(" ")
        found.setdefault(name, []).append(text)
    return found


def end(head: SandboxHead, name: str) -> None:
    """Let a job end by itself."""
    head.shell(f"touch {BUCKET}/stop/{name}")


def start_driver(head: SandboxHead) -> None:
    """Start what no jobs API knows of: a script that connects by itself, and makes an actor."""
    head.shell(f"python -c '{DRIVER}' > {BUCKET}/driver.log 2>&1", detached=True)
    wait_until(
        lambda: "connected" in head.shell(f"cat {BUCKET}/driver.log 2>&1 || true"),
        what="the driver to connect",
        timeout=START_SECONDS,
        reason=lambda: head.shell(f"tail -5 {BUCKET}/driver.log"),
    )


def submitted(facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each job was submitted with, as the GCS keeps it: all but its life.

    Ray itself binds a job without needs to the head that it has then.
    """
    found = {}
    for name, job in facts["jobs"].items():
        found[name] = {key: value for key, value in job.items() if key not in LIFE}
        labels = job.get("label_selector") or {}
        found[name]["label_selector"] = {
            key: value for key, value in labels.items() if key != "ray.io/node-id"
        }
    return found


def named_packages(job: Mapping[str, Any]) -> set[str]:
    """The packages that ``job``, one of submitted(), needs."""
    env = json.loads(job.get("runtime_env_json") or "{}")
    return {each for each in (env.get("working_dir"), *env.get("py_modules", ())) if each}


def asked_for(kind: Kind) -> dict[str, Any]:
    """The fields of a kind as the GCS keeps them."""
    fields = {"entrypoint": kind.entrypoint, **kind.fields}
    fields["label_selector"] = fields.pop("entrypoint_label_selector", {})
    return fields


def told(job: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """Those fields of ``job``, one of submitted(), that ``kind`` has."""
    env = {"runtime_env": json.loads(job["runtime_env_json"])} if "runtime_env_json" in job else {}
    return {name: {**job, **env}[name] for name in asked_for(kind)}


def in_order(facts: Mapping[str, Any]) -> list[str]:
    """The jobs in the order of their submission.

    Without what a slow Ray made anew of a job that was deleted right after its end: it is FAILED
    and has no time (a rollout's probe may leave one).
    """
    started = {
        name: int(job["start_time"]) for name, job in facts["jobs"].items() if job["start_time"]
    }
    return sorted(started, key=started.__getitem__)


def wait_for(
    head: SandboxHead, kinds: Iterable[Kind], *, lines: Mapping[str, int]
) -> dict[str, Any]:
    """Wait until every one of ``kinds`` is as it should be, and return the head's facts.

    One that starts is RUNNING and has left as many lines in all as ``lines`` says (default: 1).
    """
    wanted = {
        kind.name: ("RUNNING", lines.get(kind.name, 1)) if kind.starts else ("PENDING", 0)
        for kind in kinds
    }
    off: list[str] = []

    def ready() -> dict[str, Any] | None:
        left = runs(head)
        # Cheap; the head's own store is asked when it can be right.
        off[:] = [
            f"{name}: {len(left.get(name, ()))} lines, not {count}"
            for name, (_, count) in wanted.items()
            if len(left.get(name, ())) != count
        ]
        if off:
            return None
        facts = head.facts()
        for name, (status, _) in wanted.items():
            job = facts["jobs"].get(name, {})
            if job.get("status") != status:
                off.append(f"{name}: {job.get('status')}, not {status}: {job.get('message')}")
        return None if off else facts

    return wait_until(
        ready,
        what="the jobs to be as they should",
        timeout=START_SECONDS,
        interval=1.0,
        reason=lambda: "; ".join(off),
    )

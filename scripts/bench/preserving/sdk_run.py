"""Save and give back the jobs of a head with Ray's own SDK: one client, one process, threads.

    sdk_run.py backup FOLDER PACKAGES           list the jobs, copy what the head has unpacked
    sdk_run.py restore FOLDER NEEDS THREADS     submit them all; NEEDS as JSON, for those that wait

It prints what it did as one line of JSON. What a careful operator would write in an afternoon: the
fields that the list has, the ids kept, submitted by threads.
"""

from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ray.job_submission import JobSubmissionClient

DASHBOARD = "http://127.0.0.1:8265"
LISTING = "jobs.json"


def backup(folder: Path, packages: Path) -> dict[str, int]:
    """Write down what the dashboard lists, and copy the working directories."""
    jobs = [
        job
        for job in JobSubmissionClient(DASHBOARD).list_jobs()
        if job.status in ("PENDING", "RUNNING")
    ]
    jobs.sort(key=lambda job: job.start_time or 0)
    shutil.copytree(packages, folder)
    (folder / LISTING).write_text(json.dumps([job.dict() for job in jobs], default=str))
    return {"listed": len(jobs)}


def restore(folder: Path, needs: dict[str, Any], threads: int) -> dict[str, int]:
    """Submit what was written down, in its order, ``threads`` at a time."""
    client = JobSubmissionClient(DASHBOARD)

    def submit(job: dict[str, Any]) -> bool:
        env = dict(job["runtime_env"])
        env["working_dir"] = str(folder / Path(env["working_dir"].removeprefix("gcs://")).stem)
        try:
            client.submit_job(
                entrypoint=job["entrypoint"],
                submission_id=job["submission_id"],
                runtime_env=env,
                metadata=job["metadata"],
                **(needs if job["status"] == "PENDING" else {}),
            )
        except (RuntimeError, OSError) as error:
            print(error, file=sys.stderr)
            return False
        return True

    jobs = json.loads((folder / LISTING).read_text())
    with ThreadPoolExecutor(threads) as pool:
        return {"refused": list(pool.map(submit, jobs)).count(False)}


if __name__ == "__main__":
    verb, where, what, *rest = sys.argv[1:]
    done = (
        backup(Path(where), Path(what))
        if verb == "backup"
        else restore(Path(where), json.loads(what), int(rest[0]))
    )
    print(json.dumps(done))

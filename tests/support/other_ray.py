"""A Ray that keeps its jobs elsewhere in its store, as another version of it may."""

from __future__ import annotations

from pathlib import Path

PREFIX = "_ray_elsewhere_jobs_"
NAMESPACE = "jobs-elsewhere"

# Python runs it at its start; what it changes is changed as soon as Ray has loaded it.
_SITE = f"""
import sys
from importlib.machinery import PathFinder

def constants(module):
    module.KV_NAMESPACE_JOB = {NAMESPACE!r}.encode()

def common(module):
    storage = module.JobInfoStorageClient
    storage.JOB_DATA_KEY_PREFIX = {PREFIX!r}
    storage.JOB_DATA_KEY = {PREFIX!r} + "{{job_id}}"

CHANGES = {{"ray._private.ray_constants": constants, "ray.dashboard.modules.job.common": common}}

class Changed:
    @staticmethod
    def find_spec(name, path, target=None):
        if name not in CHANGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            CHANGES[name](module)

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Changed)
"""


def other_ray(folder: Path) -> dict[str, str]:
    """Environment variables of a head whose Ray has another prefix and another namespace;
    ``folder`` is for the change."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(_SITE)
    return {"PYTHONPATH": str(folder)}

"""A small project on disk, and the means to vary its fleet file."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayfleet.errors import FleetFileError
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import Fleet

REPOSITORY = Path(__file__).parents[3]

GOOD = """\
project: my-project
defaults:
  provider: gcp
  image: cluster
  template: gcp.yaml.j2
  accelerator: v5e
  name_prefix: marin-
  auth: {mode: token, secret: RAY_AUTH_TOKEN}
images:
  cluster:
    name: marin_cluster
    repository: marin
    dockerfile: docker/Dockerfile.cluster
    context: [docker]
registries:
  host: "{region}-docker.pkg.dev"
  regions: [us-east5, us-west4]
clusters:
  us-east5:
    zone: us-east5-b
    bucket: marin-us-east5
    workers: {base: {min: 1, max: 4}, v5e-128: {min: 2}}
  us-west4:
    zone: us-west4-a
    bucket: marin-us-west4
    tag: "20251209"
    ray: "2.53.0"
rollout:
  order: [us-west4]
"""

TAG = 'tag: "20251209"\n    ray: "2.53.0"'  # lines 26 and 27 of it

SANDBOX_EDITS = {
    "provider: gcp": "provider: sandbox",
    "template: gcp.yaml.j2": "template: sandbox.yaml.j2",
    "accelerator: v5e": "accelerator: cpu",
    "{mode: token, secret: RAY_AUTH_TOKEN}": "{mode: disabled}",
    '"{region}-docker.pkg.dev"': '"127.0.0.1:{port}"',
    "name_prefix: marin-": 'ssh: {private_key: "{state}/key"}',
    ", v5e-128: {min: 2}": "",
}


@dataclass(frozen=True)
class Place:
    """A project in a folder of its own."""

    root: Path

    @property
    def file(self) -> Path:
        return self.root / "infra" / "fleet.yaml"

    @property
    def state(self) -> Path:
        return self.root / ".rayfleet"

    def write(self, text: str) -> None:
        self.file.write_text(text, encoding="utf-8")

    def edit(self, edits: dict[str, str]) -> None:
        """Replace texts that occur once in the good fleet file."""
        text = GOOD
        for old, new in edits.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        self.write(text)

    def load(self, *, look: bool = True) -> Fleet:
        return load_fleet(self.file, root=self.root, state=self.state, look=look)

    def problems(self) -> list[str]:
        """The lines of the one error that loading ends with, without the file's name."""
        with pytest.raises(FleetFileError) as caught:
            self.load()
        return [line.removeprefix("infra/fleet.yaml:") for line in caught.value.problems]

    def sandbox_up(self, **changes: object) -> None:
        """What the sandbox writes down when it comes up."""
        place = {
            "id": "s1",
            "network": "net-s1",
            "engine": "unix:///var/run/docker.sock",
            "credentials": str(self.state / "credentials.json"),
            "private_key": str(self.state / "key"),
            "public_key": str(self.state / "key.pub"),
            "registry_ports": {"us-east5": 5001, "us-west4": 5002},
            "api": "127.0.0.1:5003",
        }
        path = self.state / "sandbox" / "endpoints.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**place, **changes}))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project with the repository's templates and a fleet file without mistakes."""
    shutil.copytree(REPOSITORY / "infra" / "templates", tmp_path / "infra" / "templates")
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "Dockerfile.cluster").touch()
    project = Place(tmp_path)
    project.write(GOOD)
    return project

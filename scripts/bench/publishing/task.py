"""`invoke image.publish` for registries that are there: a sandbox's fleet around them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from publishing.registries import REPOSITORY
from rayfleet.sandbox.api_process import ApiProcess
from rayfleet.sandbox.engine import engine_url
from rayfleet.sandbox.place import Place, ensure_key, write_credentials, write_endpoints

ROOT = Path(__file__).resolve().parents[3]
INVOKE = Path(sys.executable).with_name("invoke")
PROJECT, FAMILY, NAME = REPOSITORY.split("/")

FLEET = """\
project: {project}
outputs: {{pins: "{{state}}/pins.yaml", configs: "{{state}}/clusters"}}
defaults:
  provider: sandbox
  image: cluster
  template: sandbox.yaml.j2
  accelerator: cpu
  ssh: {{user: ray, private_key: "{key}", public_key: "{key}.pub"}}
  auth: {{mode: disabled}}
images:
  cluster:
    name: {name}
    repository: {family}
    dockerfile: docker/Dockerfile.cluster
    context: [docker]
registries:
  host: "127.0.0.1:{{port}}"
  regions: {regions}
  cleanup: {{delete_older_than: 30d, keep_most_recent: 16}}
clusters:
  one: {{zone: {zone}, bucket: bench}}
"""


@contextmanager
def fleet_around(
    folder: Path, ports: Mapping[str, int], stores: Mapping[str, Path]
) -> Iterator[None]:
    """Write a fleet into ``folder`` whose regions are at ``ports``, and serve its API meanwhile.

    ``stores`` are the folders of the registries' blobs, which the API lists.
    """
    place = Place(folder / "state" / "sandbox")
    ensure_key(place)
    for region, store in stores.items():
        place.storage(region).parent.mkdir(parents=True, exist_ok=True)
        place.storage(region).symlink_to(store)
    # These registries ask for no password, and get one all the same.
    write_credentials(place, [f"127.0.0.1:{port}" for port in ports.values()], "unused")
    api = ApiProcess(place)
    try:
        address = api.ensure(PROJECT, ports)
        write_endpoints(place, engine=engine_url(), ports=ports, api=address)
        (folder / "fleet.yaml").write_text(
            FLEET.format(
                project=PROJECT,
                family=FAMILY,
                name=NAME,
                key=place.private_key,
                regions=json.dumps(list(ports)),
                zone=f"{next(iter(ports))}-b",
            )
        )
        yield
    finally:
        api.stop()


def command(folder: Path, image: str, tags: tuple[str, ...]) -> list[str]:
    """The task as an operator types it; it protects the image and pins it as well."""
    # A pin is called by the first tag that stays.
    ordered = sorted(tags, key=lambda tag: tag == "latest")
    named = (word for tag in ordered for word in ("--tag", tag))
    return [
        *("env", "-C", str(ROOT)),
        *(f"INVOKE_FLEET={folder / 'fleet.yaml'}", f"INVOKE_STATE={folder / 'state'}"),
        *(str(INVOKE), "image.publish", "--ref", image, *named),
    ]

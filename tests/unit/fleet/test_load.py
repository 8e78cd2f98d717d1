"""Loading the fleet file: what is read, and every way in which it can be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayfleet.errors import FleetFileError, PrerequisiteMissing
from rayfleet.fleet.document import Trail
from rayfleet.fleet.load import load_fleet
from rayfleet.fleet.model import AuthMode, Compression, Provider, Workers
from rayfleet.job.infrastructure import infrastructure_rule
from tests.support.quick_yaml import read_yaml, write_yaml
from tests.unit.fleet.conftest import GOOD, REPOSITORY, SANDBOX_EDITS, TAG, Place

TWELVE = """\
project: my-project
defaults:
  provider: gcp
  image: clutser
  template: gcp.yaml.j2
  auth: {mode: token, secret: RAY_AUTH_TOKEN}
images:
  cluster:
    name: marin_cluster
    repository: marin
    dockerfile: docker/Dockerfile.nowhere
    context: [docker]
registries:
  host: "{region}-docker.pkg.dev"
  regions: [us-east5, us-west4]
  cleanup: {delete_older_than: a month}
clusters:
  one:
    zone: us-east5-b
    region: us-west4
    accelerator: v5e
    bucket: marin-us-east5
  two:
    zone: us-west4-a
    acelerator: v5e
    accelerator: v5e
    bucket: marin-us-west4
    tag: 20251209
  three:
    zone: us-west4-a
    accelerator: v7
    bucket: marin-us-west4
    workers: {base: {min: 5, max: 4}}
  four:
    zone: europe-west4-b
    accelerator: v5e
    workers: {v5e-12: {min: 1}}
  two:
    zone: us-west4-b
rollout:
  order: [one]
"""


def test_twelve_different_mistakes_are_all_reported_at_once_with_their_lines(place: Place) -> None:
    place.write(TWELVE)
    assert place.problems() == [
        "4: defaults.image: there is no image 'clutser'; did you mean cluster?",
        "11: images.cluster.dockerfile: there is no file 'docker/Dockerfile.nowhere' in the "
        "project; write a path like docker/Dockerfile",
        "16: registries.cleanup.delete_older_than: 'a month' is no duration; "
        "write a count and d, h or m, such as 30d",
        "19: clusters.one.zone: us-east5-b is not in the region us-west4; "
        "write region: us-east5 or leave it out",
        "25: clusters.two.acelerator: unknown key; did you mean accelerator?",
        '28: clusters.two.tag: expected text, found 20251209; quote it: "20251209"',
        "31: clusters.three.accelerator: there is no accelerator 'v7'; "
        "known: v4, v4-serve, v5e, v5p, v6e, v6e-serve, cpu",
        "33: clusters.three.workers.base.min: min 5 is above max 4; write max: 5 or a smaller min",
        "34: clusters.four.bucket: missing; write bucket: marin-us-east5",
        "35: clusters.four.zone: there is no registry in the region europe-west4; "
        "did you mean us-west4? (registries.regions)",
        "37: clusters.four.workers.v5e-12: v5e has no slice 'v5e-12'; did you mean v5e-128?",
        "38: clusters.two: written twice (first in line 23); keep one",
    ]


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "a number as a tag": (
        {'"20251209"': "1e10"},
        '26: clusters.us-west4.tag: 1e10 is a number to other YAML readers; quote it: "1e10"',
    ),
    "a tag that no registry takes": (
        {'"20251209"': '"a b"'},
        "26: clusters.us-west4.tag: 'a b' is no image tag",
    ),
    "a missing section": (
        {GOOD[GOOD.index("images:") : GOOD.index("registries:")]: ""},
        "1: images: missing; write images: {cluster: {name: marin_cluster, …}}",
    ),
    "no clusters": (
        {GOOD[GOOD.index("clusters:") :]: "clusters: {}\n"},
        "18: clusters: there is no cluster; write at least one",
    ),
    "a cluster that is nothing": (
        {"  us-west4:\n": "  empty:\n  us-west4:\n"},
        "23: clusters.empty: expected a mapping, found nothing",
    ),
    "two clusters with one identity": (
        {TAG: "identity: marin-us-east5"},
        "26: clusters.us-west4.identity: the identity marin-us-east5 is that of us-east5 too",
    ),
    "a name that is another's identity": (
        {TAG: "identity: us-east5"},
        "19: clusters.us-east5: the name is also the identity of us-west4",
    ),
    "a name that no file can have": (
        {"  us-west4:\n": "  US/West:\n", "[us-west4]\n": "[us-east5]\n"},
        "23: clusters.US/West: 'US/West' is no cluster name",
    ),
    "an unknown provider": (
        {"provider: gcp": "provider: gpc"},
        "3: defaults.provider: 'gpc' is unknown; write 'gcp' or 'sandbox'",
    ),
    "an unknown auth mode": (
        {"mode: token": "mode: tokens"},
        "8: defaults.auth.mode: 'tokens' is unknown; write 'token' or 'disabled'",
    ),
    "an unknown compression": (
        {"context: [docker]": "context: [docker]\n    compression: zst"},
        "15: images.cluster.compression: 'zst' is unknown; write 'gzip' or 'zstd'",
    ),
    "a level instead of a compression": (
        {"context: [docker]": "context: [docker]\n    compression: 3"},
        "15: images.cluster.compression: 3 is unknown; write 'gzip' or 'zstd'",
    ),
    "a token without a secret": (
        {", secret: RAY_AUTH_TOKEN": "", TAG: "auth: {secret: OTHER}"},
        "19: clusters.us-east5.auth: mode token needs a secret",
    ),
    "a fixed image of nobody knows which Ray": (
        {TAG: 'tag: "20251209"'},
        "26: clusters.us-west4.tag: nothing says which Ray this image has, and a Ray before 2.52 "
        'lets everybody in; write ray: "2.53.0" (what it has) or auth: {mode: disabled}',
    ),
    "a fixed image whose Ray knows no tokens": (
        {"2.53.0": "2.45.0"},
        "27: clusters.us-west4.ray: Ray 2.45.0 knows no tokens and lets everybody in",
    ),
    "a Ray of nothing": (
        {TAG: 'ray: "2.53.0"'},
        "26: clusters.us-west4.ray: goes with a tag; what LATEST has is in the pins; remove it",
    ),
    "a Ray that is no version": (
        {"2.53.0": "2.x"},
        "27: clusters.us-west4.ray: '2.x' is no version of Ray; write ray: \"2.53.0\"",
    ),
    "an unknown template": (
        {"gcp.yaml.j2": "gpc.yaml.j2"},
        "5: defaults.template: there is no template 'gpc.yaml.j2' in infra/templates; "
        "did you mean gcp.yaml.j2?",
    ),
    "a context outside the project": (
        {"[docker]": "[docker, ../other]"},
        "14: images.cluster.context.1: there is no '../other' in the project",
    ),
    "an unknown order": (
        {"order: [us-west4]": "order: [us-west5]"},
        "29: rollout.order.0: there is no cluster 'us-west5'; did you mean us-west4?",
    ),
    "a cluster ordered twice": (
        {"order: [us-west4]": "order: [us-west4, us-west4]"},
        "29: rollout.order.1: 'us-west4' is in the list twice",
    ),
    "waves that end early": (
        {"order: [us-west4]": "waves: [1, 50%]"},
        '29: rollout.waves: the last wave must be "100%"',
    ),
    "waves of nothing": (
        {"order: [us-west4]": "waves: [0, 100%]"},
        "29: rollout.waves.0: 0 is no wave",
    ),
    "waves that shrink": (
        {"order: [us-west4]": "waves: [50%, 25%, 100%]"},
        "29: rollout.waves: the percentages must grow",
    ),
    "an unknown placeholder": (
        {"{region}-": "{zone}-"},
        "16: registries.host: the placeholder {zone} is unknown here; write one of: {region}",
    ),
    "a sandbox's port in a cloud": (
        {'"{region}-docker.pkg.dev"': '"{region}:{port}"'},
        "16: registries.host: the placeholder {port} is unknown here",
    ),
    "one host for two regions": (
        {'"{region}-docker.pkg.dev"': "docker.io"},
        "16: registries.host: one host for all regions",
    ),
    "minimums above the maximum": (
        {"v5e-128: {min: 2}": "v5e-128: {min: 1024}"},
        "22: clusters.us-east5.workers: the minimums add up to 1025, above max_workers 1024",
    ),
    "two providers": (
        {TAG: "provider: sandbox"},
        "26: clusters.us-west4.provider: one fleet has one provider",
    ),
    "an alias": (
        {"zone: us-west4-a": "zone: &z us-west4-a", TAG: "tag: *z"},
        "26: clusters.us-west4.tag: anchors and aliases are not read here",
    ),
    "a list for a name": (
        {"name: marin_cluster": "name: [marin_cluster]"},
        "11: images.cluster.name: expected text, found a list; write name: marin_cluster",
    ),
    "two images in one place": (
        {
            "images:\n": "images:\n  other: {name: marin_cluster, repository: marin, "
            "dockerfile: docker/Dockerfile.cluster, context: [docker]}\n"
        },
        "12: images.cluster.name: the same repository and name as other; write another name",
    ),
    "images built on each other": (
        {
            "images:\n": "images:\n  other: {name: other, repository: marin, base_image: cluster, "
            "dockerfile: docker/Dockerfile.cluster, context: [docker]}\n",
            "    context: [docker]\n": "    context: [docker]\n    base_image: other\n",
        },
        "16: images.cluster.base_image: cluster is built on itself; write debian:bookworm-slim",
    ),
    "a negative minimum": (
        {"min: 2": "min: -2"},
        "22: clusters.us-east5.workers.v5e-128.min: -2 is negative; write 0 or more",
    ),
    "a word that YAML reads as true": (
        {"order: [us-west4]": "order: [on]"},
        '29: rollout.order.0: expected text, found true; quote it: "on"',
    ),
    "a number of the wrong kind": (
        {"{min: 1, max: 4}": "{min: 1.5, max: 4}"},
        "22: clusters.us-east5.workers.base.min: expected a whole number, found 1.5; write min: 0",
    ),
    "infrastructure that is every job": (
        {"rollout:": 'jobs: {infrastructure: ["cleanup-*", "*-*"]}\nrollout:'},
        "28: jobs.infrastructure.1: '*-*' names no job in particular; write the start of its id",
    ),
    "infrastructure that is any letter": (
        {"rollout:": 'jobs: {infrastructure: ["[a-z]*"]}\nrollout:'},
        "28: jobs.infrastructure.0: '[a-z]*' names no job in particular",
    ),
    "infrastructure named twice": (
        {"rollout:": "jobs: {infrastructure: [cron-*, cron-*]}\nrollout:"},
        "28: jobs.infrastructure.1: 'cron-*' is in the list twice",
    ),
    "infrastructure that is no list": (
        {"rollout:": "jobs: {infrastructure: cron-*}\nrollout:"},
        "28: jobs.infrastructure: expected a list, found the text 'cron-*'; "
        'write infrastructure: ["cleanup-*"]',
    ),
    "a key that is no text": (
        {"rollout:": "1:"},
        "28: 1: the key is not text; write it in quotes",
    ),
}


@pytest.mark.parametrize(("edits", "expected"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_reported_once_with_its_line_and_remedy(
    place: Place, edits: dict[str, str], expected: str
) -> None:
    place.edit(edits)
    (problem,) = place.problems()
    assert problem.startswith(expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "1: the file is empty"),
        (b"- a\n- b\n", "1: the file must be a mapping"),
        (b"a: [1\nb: 2\n", "2: not YAML: did not find expected ',' or ']'"),
        (b"a: 1\nb: \xff\n", "2: not UTF-8 text (byte 0xff)"),
        (b"a: 1\n---\nb: 2\n", "3: another document begins"),
        (b"a: \x00\n", "1: not YAML"),
        (b"[" * 200_000, "1: not YAML: nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_error(
    place: Place, content: bytes, expected: str
) -> None:
    place.file.write_bytes(content)
    (problem,) = place.problems()
    assert problem.startswith(expected)


def test_a_missing_file_and_a_folder_are_one_clear_error(place: Place) -> None:
    place.file.unlink()
    assert place.problems() == ["1: cannot be read: No such file or directory"]
    place.file.mkdir()
    assert place.problems() == ["1: cannot be read: Is a directory"]


def test_defaults_reach_the_clusters_and_clusters_override_them(place: Place) -> None:
    place.edit({TAG: "auth: {mode: disabled}\n    identity: west\n    image: cluster"})
    fleet = place.load()
    east, west = fleet.clusters.values()
    assert (east.identity, east.region, east.accelerator) == ("marin-us-east5", "us-east5", "v5e")
    assert east.provider is Provider.GCP
    assert (east.auth.mode, east.auth.secret) == (AuthMode.TOKEN, "RAY_AUTH_TOKEN")
    assert (west.identity, west.auth.mode) == ("west", AuthMode.DISABLED)
    assert east.workers == {
        "base": Workers(min_count=1, max_count=4),
        "v5e-128": Workers(min_count=2, max_count=1024),
    }
    assert fleet.registries.hosts["us-west4"] == "us-west4-docker.pkg.dev"
    assert fleet.registries.cleanup.delete_older_than == timedelta(days=30)
    assert fleet.rollout.waves == (1, "25%", "100%")
    assert fleet.outputs.pins == place.root / "infra" / "images.lock.yaml"
    assert not fleet.is_sandbox


def test_layers_are_compressed_with_gzip_unless_the_family_says_otherwise(place: Place) -> None:
    place.edit({})
    assert place.load().images["cluster"].compression is Compression.GZIP
    place.edit({"context: [docker]": "context: [docker]\n    compression: zstd"})
    assert place.load().images["cluster"].compression is Compression.ZSTD


def test_jobs_of_the_infrastructure_are_those_that_the_file_names(place: Place) -> None:
    assert place.load().infrastructure_jobs == ()
    place.edit({"rollout:": 'jobs: {infrastructure: ["cleanup-*", cron]}\nrollout:'})
    assert place.load().infrastructure_jobs == ("cleanup-*", "cron")


def test_the_production_fleet_restores_no_cleanup_job(tmp_path: Path) -> None:
    # marin-operations.md 6.3, row 12: start-cluster submits one more after each restart.
    fleet = load_fleet(REPOSITORY / "infra" / "fleet.yaml", root=REPOSITORY, state=tmp_path)
    is_infrastructure = infrastructure_rule(fleet.infrastructure_jobs)
    assert is_infrastructure("marin-cleanup-cron-20251014_093000", None)
    assert not is_infrastructure("raysubmit_marin-cleanup-cron", None)


def test_the_sandbox_fleet_that_ships_has_its_four_clusters(tmp_path: Path) -> None:
    fleet = load_fleet(REPOSITORY / "infra" / "sandbox.yaml", root=REPOSITORY, state=tmp_path)
    assert list(fleet.clusters) == [
        "us-central2-staging",
        "us-central2",
        "europe-west4",
        "us-east5",
    ]
    assert fleet.is_sandbox
    assert fleet.outputs.pins.is_relative_to(tmp_path)
    assert fleet.outputs.configs.is_relative_to(tmp_path)


def test_a_sandbox_that_is_not_up_has_no_registries(place: Place) -> None:
    place.edit(SANDBOX_EDITS)
    fleet = place.load()
    assert fleet.is_sandbox
    assert fleet.sandbox is None
    assert fleet.registries.hosts == {}
    assert fleet.registries.api == ""
    assert fleet.clusters["us-east5"].ssh.private_key == f"{place.state}/key"


def test_a_sandbox_that_is_up_names_its_registries(place: Place) -> None:
    place.edit(SANDBOX_EDITS)
    place.sandbox_up()
    fleet = place.load()
    assert fleet.sandbox is not None
    assert fleet.sandbox.private_key == place.state / "key"
    assert fleet.registries.hosts == {"us-east5": "127.0.0.1:5001", "us-west4": "127.0.0.1:5002"}
    assert fleet.registries.api == "127.0.0.1:5003"


def test_a_broken_note_of_the_sandbox_names_the_command_that_mends_it(place: Place) -> None:
    place.edit(SANDBOX_EDITS)
    place.sandbox_up(registry_ports="none")
    with pytest.raises(PrerequisiteMissing, match=r"registry_ports.*\n  next: invoke sandbox.up"):
        place.load()
    assert place.load(look=False).sandbox is None


def test_a_cloud_fleet_does_not_look_at_the_sandbox(place: Place) -> None:
    place.sandbox_up(registry_ports="none")
    assert place.load().sandbox is None


# Every example writes its own file, so one folder serves them all.
ONE_PLACE = HealthCheck.function_scoped_fixture
KEYS = st.sampled_from(
    sorted({word.strip(" {}[],\"'") for line in GOOD.splitlines() for word in line.split(":")})
) | st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | KEYS
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)


def _trails(value: object, trail: Trail = ()) -> Iterator[Trail]:
    if trail:
        yield trail
    items = value.items() if isinstance(value, dict) else ()
    for key, item in items:
        yield from _trails(item, (*trail, key))


@settings(max_examples=150, deadline=None, suppress_health_check=[ONE_PLACE])
@given(trail=st.sampled_from(list(_trails(read_yaml(GOOD)))), tree=TREES, key=KEYS)
def test_no_tree_anywhere_makes_loading_fail_in_any_other_way(
    place: Place, trail: Trail, tree: object, key: str
) -> None:
    document = read_yaml(GOOD)
    above = document
    for step in trail[:-1]:
        above = above[step]
    above[trail[-1]] = tree
    above[key] = tree
    place.write(write_yaml(document, allow_unicode=True))
    assert _loads_or_says_why(place)


@settings(max_examples=100, deadline=None, suppress_health_check=[ONE_PLACE])
@given(noise=st.binary(max_size=40), position=st.integers(0, len(GOOD)))
def test_no_bytes_make_loading_fail_in_any_other_way(
    place: Place, noise: bytes, position: int
) -> None:
    good = GOOD.encode()
    place.file.write_bytes(good[:position] + noise + good[position:])
    assert _loads_or_says_why(place)


def _loads_or_says_why(place: Place) -> bool:
    try:
        return bool(place.load().clusters)
    except FleetFileError as error:
        lines = [line.startswith("infra/fleet.yaml:") for line in error.problems]
        return bool(lines) and all(lines)

"""Ray's own files: an error in one that Ray itself takes would be a false alarm."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from rayfleet.fleet.lint.kinds import Kind, kind_of
from rayfleet.fleet.lint.providers import KNOWN
from rayfleet.fleet.lint.ray_files import DEFAULTS, PROVIDERS
from rayfleet.fleet.lint.run import lint_files
from tests.unit.fleet.conftest import REPOSITORY
from tests.unit.fleet.lint.examples import GOOD, spoiled


def _autoscaler() -> Path:
    found = find_spec("ray")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "autoscaler"


def _corpus() -> dict[str, Path]:
    """Every cluster config that the installed Ray holds, by its path."""
    folder = _autoscaler()
    paths = [*folder.rglob("*.yaml"), *folder.rglob("*.yml")]
    documents = {path: yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in paths}
    return {
        str(path.relative_to(folder)): path
        for path, document in documents.items()
        if isinstance(document, dict) and kind_of(document) in (Kind.RAY, Kind.KUBERAY)
    }


CORPUS = _corpus()
# Ray takes neither as it stands: the one is a part of a config, and the other fails its own schema.
REFUSED = {
    "local/defaults.yaml": {("key-missing", "")},
    "vsphere/defaults.yaml": {
        ("key-missing", "available_node_types.ray.head.default"),
        ("key-missing", "available_node_types.worker"),
        ("key-missing", "available_node_types.worker_2"),
        ("provider-key-missing", "provider.vsphere_config"),
    },
}


def taken_by_ray(config: Mapping[str, Any]) -> bool:
    """Whether Ray's own code fills in and validates a config without an error."""
    from click import ClickException
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    own = (ValidationError, ClickException, KeyError, ValueError, TypeError, AttributeError)
    try:
        validate_config(prepare_config(copy.deepcopy(dict(config))))
    except (*own, AssertionError, RuntimeError, OSError):
        return False
    return True


@pytest.mark.parametrize("name", CORPUS)
def test_no_error_in_a_file_of_ray_that_ray_takes(name: str) -> None:
    found = {(one.rule, one.key) for one in lint_files([CORPUS[name]]) if one.is_error}
    assert found == REFUSED.get(name, set())
    config = yaml.load(CORPUS[name].read_text(), Loader=yaml.CSafeLoader)
    assert taken_by_ray(config) == (name not in REFUSED)


def test_the_corpus_has_every_provider_whose_defaults_ray_ships() -> None:
    shipped = {path for path in DEFAULTS.values() if (_autoscaler() / path).is_file()}
    assert shipped <= set(CORPUS)
    assert len(shipped) >= 7


def test_all_files_of_ray_together_get_no_error_more() -> None:
    found = lint_files(list(CORPUS.values()))
    assert len([one for one in found if one.is_error]) == sum(map(len, REFUSED.values()))


def test_the_providers_are_those_of_ray() -> None:
    from ray.autoscaler._private.providers import _DEFAULT_CONFIGS, _NODE_PROVIDERS

    assert set(_NODE_PROVIDERS) == PROVIDERS
    assert set(_DEFAULT_CONFIGS) == set(DEFAULTS)
    assert set(KNOWN) <= PROVIDERS


@pytest.mark.parametrize("provider", GOOD)
def test_ray_takes_the_good_examples(provider: str) -> None:
    # Ray wants the module of one's own provider for nothing but to run it.
    assert taken_by_ray(yaml.load(GOOD[provider], Loader=yaml.CSafeLoader))


# What Ray's own code refuses must be an error here, with all else that is wrong beside it.
REFUSALS: dict[str, tuple[str, dict[str, str]]] = {
    "an unknown key": ("aws", {"max_workers: 3\nprov": "max_worker: 3\nprov"}),
    "an old form": ("aws", {"auth:": "head_node: {a: 1}\nauth:"}),
    "null setup commands": ("gcp", {"  - pip install 'ray[default]==2.60.0'\n": ""}),
    "null docker": ("azure", {"auth:": "docker:\nauth:"}),
    "null mounts": ("azure", {"auth:": "file_mounts:\nauth:"}),
    "null auth": ("azure", {"auth:\n  ssh_user: ubuntu": "auth:"}),
    "a null name": ("aws", {"aws-farm": ""}),
    "a number as name": ("aws", {"aws-farm": "5"}),
    "no type": ("aws", {"  type: aws\n": ""}),
    "a foreign type": ("aws", {"type: aws": "type: awz"}),
    "too many minimums": ("aws", {"max_workers: 3\nprov": "max_workers: 0\nprov"}),
    "a foreign head": ("aws", {"head_node_type: leader": "head_node_type: boss"}),
    "no head type": ("aws", {"head_node_type: leader\n": ""}),
    "a type without resources": ("gcp", {"    resources: {CPU: 4}\n": ""}),
    "a type without a machine": ("vsphere", {"{CPU: 4}\n    node_config: {vm_class: small}": "{}"}),
    "half a CPU": ("gcp", {"{CPU: 2}": "{CPU: 0.5}"}),
    "an image without a name": ("aws", {"  container_name: ray_docker\n": ""}),
    "a name without an image": ("aws", {"  image: rayproject/ray:2.60.0\n": ""}),
    "local without a head": ("local", {"  head_ip: 10.0.0.1\n": ""}),
    "local with node types": (
        "local",
        {"auth:": "available_node_types: {a: {resources: {}, node_config: {}}}\nauth:"},
    ),
    "local with few workers": ("local", {"max_workers: 3": "max_workers: 1"}),
    "external without commands": ("external", {"head_setup_commands: []\n": ""}),
    "external without a maximum": ("external", {"max_workers: 3\nprov": "prov"}),
    "external without synced files": ("external", {"cluster_synced_files: []\n": ""}),
    "a list of node types": (
        "aws",
        {"available_node_types:\n": "available_node_types: []\nfoo:\n"},
    ),
    "an unknown key of docker": ("aws", {"  container_name:": "  pull: true\n  container_name:"}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_ray_refuses_is_an_error(name: str, tmp_path: Path) -> None:
    text = spoiled(*REFUSALS[name])
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert not taken_by_ray(yaml.load(text, Loader=yaml.CSafeLoader))
    assert [one for one in lint_files([path]) if one.is_error]


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("infra/clusters/*.yaml")), ids=str)
def test_no_error_in_our_own_configs(path: Path) -> None:
    assert [one.line for one in lint_files([path]) if one.is_error] == []

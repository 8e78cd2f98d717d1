"""The part of the second reading that is about how things are reached: SSH, tokens, registries,
paths. What passes here may stand in a command, an address or a path without surprises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rayfleet.fleet.check_shared import Entry, check_repeats, mapping
from rayfleet.fleet.document import Document, Problem, Trail, Value
from rayfleet.fleet.model import Provider
from rayfleet.fleet.shape import mappings
from rayfleet.project import could_be_path

# https://cloud.google.com/secret-manager/docs/creating-and-accessing-secrets
SECRET = re.compile(r"[A-Za-z0-9_-]{1,255}")
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
REGION = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOST = re.compile(rf"{_LABEL}(\.{_LABEL}){{0,9}}(:[0-9]{{1,5}})?")
PLACES = {"{region}": "us-east5", "{port}": "5000"}
PATHS = ("private_key", "public_key")
SPECIAL = frozenset('%"')  # ssh_config has no way to write them plainly


def check_access(document: Document) -> Iterator[Problem]:
    """Every mistake of meaning in ``ssh``, ``auth``, ``registries.host`` and ``outputs``."""
    shared = mapping(document.value.get("defaults"))
    yield from _check_ssh(document, ("defaults", "ssh"), mapping(shared.get("ssh")))
    yield from _check_secret(document, ("defaults", "auth"), mapping(shared.get("auth")))
    for name, entry in mappings(document.value.get("clusters")):
        trail: Trail = ("clusters", name)
        yield from _check_ssh(document, (*trail, "ssh"), mapping(entry.get("ssh")))
        yield from _check_secret(document, (*trail, "auth"), mapping(entry.get("auth")))
        yield from _check_auth(document, trail, entry, shared)
    yield from _check_registries(document, mapping(document.value.get("registries")))
    for key, value in mapping(document.value.get("outputs")).items():
        yield from _check_path(document, ("outputs", key), value, empty=f"write {key}: infra/…")


def _check_ssh(document: Document, trail: Trail, ssh: Entry) -> Iterator[Problem]:
    user = ssh.get("user")
    if isinstance(user, str) and not USER.fullmatch(user):
        text = f"{user!r} is no name of a user; write one without spaces, such as ray"
        yield document.problem((*trail, "user"), text)
    for key in PATHS:
        path, here = ssh.get(key), (*trail, key)
        if isinstance(path, str) and path.startswith("~") and not path.startswith("~/"):
            yield document.problem(here, f"{path!r} is somebody else's home; write ~/.ssh/…")
        elif isinstance(path, str) and SPECIAL.intersection(path):
            text = f'{path!r} holds % or ", which mean something to ssh; write another path'
            yield document.problem(here, text)
        elif path != "":  # empty is a choice: the operator's own keys
            yield from _check_path(document, here, path)


def _check_secret(document: Document, trail: Trail, auth: Entry) -> Iterator[Problem]:
    secret = auth.get("secret")
    if isinstance(secret, str) and secret and not SECRET.fullmatch(secret):
        text = "not the name of a secret; write up to 255 of A-Z, a-z, 0-9, _ and -"
        # Not quoted: it may be the token itself.
        yield document.problem((*trail, "secret"), text)


def _check_auth(document: Document, trail: Trail, entry: Entry, shared: Entry) -> Iterator[Problem]:
    auth = {**mapping(shared.get("auth")), **mapping(entry.get("auth"))}
    provider = entry.get("provider", shared.get("provider"))
    if provider == Provider.SANDBOX or auth.get("mode", "token") != "token":
        return
    if not auth.get("secret"):
        text = "mode token needs a secret; write auth: {mode: token, secret: RAY_AUTH_TOKEN}"
        yield document.problem((*trail, "auth"), text)


def _check_registries(document: Document, registries: Entry) -> Iterator[Problem]:
    regions, host = registries.get("regions"), registries.get("host")
    trail: Trail = ("registries", "regions")
    if regions == []:
        yield document.problem(trail, "empty; write [us-central2]")
    if isinstance(regions, list):
        yield from check_repeats(document, trail, regions)
        for index, region in enumerate(regions):
            if isinstance(region, str) and not REGION.fullmatch(region):
                text = f"{region!r} is no region; write one such as us-east5"
                yield document.problem((*trail, index), text)
    if isinstance(host, str):
        yield from _check_host(document, host, several=isinstance(regions, list) and regions[1:])


def _check_host(document: Document, host: str, *, several: object) -> Iterator[Problem]:
    trail: Trail = ("registries", "host")
    written = host
    for place, example in PLACES.items():
        written = written.replace(place, example)
    if not host:
        yield document.problem(trail, 'empty; write "{region}-docker.pkg.dev"')
    elif not HOST.fullmatch(written):
        text = f"{host!r} is no host; write a name and perhaps a port, such as ghcr.io"
        yield document.problem(trail, text)
    elif host == written and several:
        text = 'one host for all regions; write "{region}-docker.pkg.dev"'
        yield document.problem(trail, text)


def _check_path(
    document: Document, trail: Trail, path: Value, *, empty: str = ""
) -> Iterator[Problem]:
    if not isinstance(path, str):
        return
    if not path:
        yield document.problem(trail, f"empty; {empty}")
    elif not could_be_path(path):
        yield document.problem(trail, "no file can be called so; write a shorter path")
    elif path.startswith("~"):
        try:
            Path(path).expanduser()
        except RuntimeError:
            user = path.partition("/")[0][1:]
            text = f"there is no user {user!r} on this machine; write ~/ for your own home"
            yield document.problem(trail, text)

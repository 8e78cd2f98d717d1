"""Keep logins where Docker itself finds them: for pulls and builds by hand."""

from __future__ import annotations

from dataclasses import replace

from rayfleet.console import Console
from rayfleet.errors import PrerequisiteMissing
from rayfleet.fleet.model import Fleet
from rayfleet.image.oci.credentials import Credentials, Kind, Source, login_for
from rayfleet.image.oci.docker_config import (
    config_file,
    has_helper,
    helper_of,
    name_helper,
    store_in_helper,
    store_in_plain_text,
)
from rayfleet.registry.login import OK, LoginReport

GOOGLE_HELPER = "gcloud"


def keep_logins(
    report: LoginReport, fleet: Fleet, *, console: Console, plain_text: bool = False
) -> LoginReport:
    """Have Docker know every login of ``report`` that works, as far as one can be kept.

    Google's logins are kept as the name of gcloud's credential helper, without a secret; those
    of the environment in the credential helper that Docker's configuration names, or, only with
    ``plain_text``, in that file. What was done is said, and stands in the report.

    Raises:
        PrerequisiteMissing: Docker's configuration is damaged or cannot be written; a helper
            failed.
    """
    done: dict[str, str] = {}
    for each in report.checked:
        if each.login == OK and each.source is not None and each.host not in done:
            done[each.host] = _keep(each.host, each.source, fleet, plain_text=plain_text)
            console.say(f"{each.host}: {done[each.host]}")
    checked = tuple(replace(each, stored=done.get(each.host, "")) for each in report.checked)
    return LoginReport(checked=checked)


def _keep(host: str, source: Source, fleet: Fleet, *, plain_text: bool) -> str:
    if source.kind is Kind.GOOGLE:
        return _name_googles_helper(host)
    if source.kind is Kind.ENVIRONMENT:
        credentials = login_for(host, fleet)(False)
        if credentials is not None:
            return _store(host, credentials, plain_text=plain_text)
    if source.kind is Kind.HELPER:
        return f"{source.place} keeps it already"
    if source.kind is Kind.PLAIN:
        return f"{source.place} keeps it already, in plain text"
    return "nothing to keep"


def _name_googles_helper(host: str) -> str:
    if known := helper_of(host):
        return f"Docker asks docker-credential-{known} already"
    if not has_helper(GOOGLE_HELPER):
        return (
            f"nothing kept: docker-credential-{GOOGLE_HELPER} is not installed "
            "(rayfleet itself needs no helper)"
        )
    path = name_helper(host, GOOGLE_HELPER)
    return f"{path} names docker-credential-{GOOGLE_HELPER}; it holds no secret"


def _store(host: str, credentials: Credentials, *, plain_text: bool) -> str:
    login = (credentials.username, credentials.password)
    try:
        return f"docker-credential-{store_in_helper(host, *login)} keeps it"
    except PrerequisiteMissing:
        if helper_of(host) and has_helper(helper_of(host)):
            raise
        if plain_text:
            return f"{store_in_plain_text(host, *login)} keeps it, in PLAIN TEXT"
        return (
            f"not kept: Docker has no credential helper, and {config_file()} would hold it "
            "in plain text; --plain-text does that"
        )

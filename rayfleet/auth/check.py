"""Which token a head takes, and whether it refuses all others: asked of the head itself."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from rayfleet.cluster.config import read_launch_config
from rayfleet.cluster.fanout import fan_out, reason
from rayfleet.cluster.heads import LIMIT, Heads
from rayfleet.cluster.health import ASK_TIMEOUT, DASHBOARD_PORT, ask
from rayfleet.cluster.nodes import Nodes
from rayfleet.console import Console
from rayfleet.errors import PartialFailure, RayfleetError, Unreachable
from rayfleet.fleet.model import AuthMode, Cluster, Fleet
from rayfleet.fleet.token_versions import LATEST, read_versions
from rayfleet.project import Project
from rayfleet.secret.credential import REFUSALS
from rayfleet.secret.store import Secret
from rayfleet.secret.tokens import credential_of, secret_of

if TYPE_CHECKING:
    from urllib3 import HTTPConnectionPool

SECONDS = 90.0  # for one cluster
QUESTION = "/api/version"  # Ray answers it to nobody without the token


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What one head says. ``takes`` are the enabled versions that it accepts, ``wanted`` is the
    one that its config names, and ``open`` lists who comes in without a token or with a wrong one.
    ``headless`` is a cluster without a head, which has nothing to open.
    """

    cluster: str
    mode: str
    secret: str = ""
    wanted: str = ""
    takes: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    problem: str = ""
    headless: bool = False

    @property
    def trouble(self) -> str:
        """What is wrong, in one line; empty when nothing is."""
        if self.problem or self.headless or self.mode == AuthMode.DISABLED:
            return self.problem
        if self.open:
            return f"it lets in {' and '.join(self.open)}"
        if not self.takes:
            return "it takes no enabled version of the secret"
        late = self.wanted not in (LATEST, *self.takes)
        return f"it still takes version {self.takes[0]}: restart it" if late else ""


def check_head(http: HTTPConnectionPool, secret: Secret) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The enabled versions that the head behind ``http`` takes, and who else comes in.

    Raises:
        RayfleetError: it does not answer, or the secret cannot be read.
    """
    takes = [v for v in secret.enabled() if status(http, secret.read(v)) == 200]
    strangers = {"whoever has none": "", "a wrong token": secrets.token_hex(16)}
    return tuple(takes), tuple(
        who for who, token in strangers.items() if status(http, token) not in REFUSALS
    )


def status(http: HTTPConnectionPool, token: str) -> int:
    """The HTTP status of a question with ``token``, none when it is empty.

    Raises:
        Unreachable: no answer.
    """
    from urllib3.exceptions import HTTPError

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return int(http.request("GET", QUESTION, headers=headers, timeout=ASK_TIMEOUT).status)
    except (HTTPError, OSError) as error:
        raise Unreachable("the dashboard does not answer", why=str(error)[:200]) from error


def check(
    project: Project, fleet: Fleet, clusters: Sequence[Cluster], *, port: int = DASHBOARD_PORT
) -> tuple[Checked, ...]:
    """Ask the heads of ``clusters``; never raises for one of them."""
    versions = read_versions(fleet)
    with Heads(project, fleet) as heads:

        def look(cluster: Cluster) -> Checked:
            with_mode = partial(Checked, cluster=cluster.name, mode=cluster.auth.mode.value)
            if cluster.auth.mode is AuthMode.DISABLED:
                return with_mode()
            secret = secret_of(project, fleet, cluster)
            wanted = versions.get(secret.name, LATEST)
            named = partial(with_mode, secret=secret.name, wanted=wanted)
            if not Nodes(read_launch_config(fleet, cluster)).head():
                return named(headless=True)
            (target,) = heads.targets([cluster])
            takes, others = check_head(heads.open(target).http(port), secret)
            return named(takes=takes, open=others)

        found = fan_out(
            {cluster.name: partial(look, cluster) for cluster in clusters},
            limit=LIMIT,
            timeout=SECONDS,
            what="its head",
        )
    return tuple(
        Checked(
            cluster=cluster.name,
            mode=cluster.auth.mode.value,
            secret=cluster.auth.secret,
            problem=reason(one),
        )
        if isinstance(one := found[cluster.name], RayfleetError)
        else one
        for cluster in clusters
    )


def show_checks(checked: Sequence[Checked], console: Console, *, as_json: bool) -> None:
    """Print what was found.

    Raises:
        PartialFailure: something is wrong somewhere.
    """
    if as_json:
        console.json([{**asdict(one), "trouble": one.trouble} for one in checked])
    else:
        rows = [
            (
                *(c.cluster, c.mode, c.secret, c.wanted),
                *("no head" if c.headless else ", ".join(c.takes), c.trouble or "-"),
            )
            for c in checked
        ]
        console.table(("cluster", "mode", "secret", "config", "head takes", "trouble"), rows)
    wrong = [one for one in checked if one.trouble]
    if wrong:
        raise PartialFailure(
            f"something is wrong with the tokens of {', '.join(one.cluster for one in wrong)}",
            why=wrong[0].trouble,
            next_step=f"invoke status --cluster {wrong[0].cluster}",
        )


def fetch(
    project: Project, fleet: Fleet, clusters: Sequence[Cluster], console: Console
) -> dict[str, str]:
    """Keep the token of each cluster on this machine: the one that its head takes, or, where
    none answers, the one that it is started with. Returns the files by cluster.

    Raises:
        RayfleetError: a secret cannot be read.
    """
    wanting = {one.name: one for one in clusters if one.auth.mode is AuthMode.TOKEN}
    with Heads(project, fleet) as heads:
        one_by_one = {
            name: partial(_fetched, project, fleet, cluster, heads)
            for name, cluster in wanting.items()
        }
        found = fan_out(one_by_one, limit=LIMIT, timeout=SECONDS, what="its head")
    for name, problem in found.items():
        if isinstance(problem, RayfleetError):
            raise problem
        if problem:
            console.say(f"{name}: not tried, {problem}")
    return {
        name: str(credential.cache)
        for name, cluster in wanting.items()
        if (credential := credential_of(project, fleet, cluster))
    }


def _fetched(project: Project, fleet: Fleet, cluster: Cluster, heads: Heads) -> str:
    """Keep one; returns why it could not be tried, or nothing."""
    credential = credential_of(project, fleet, cluster)
    if credential is None:
        return ""
    credential.said = ""  # the operator's own is nothing to keep
    problem = ""
    try:
        (target,) = heads.targets([cluster])
        ask(heads.open(target).http(DASHBOARD_PORT), QUESTION, credential)
    except RayfleetError as error:
        problem = reason(error)
    if not credential.cache.exists():
        wanted = read_versions(fleet).get(cluster.auth.secret, "")
        enabled = credential.secret.enabled()
        version = wanted if wanted in enabled else next(iter(enabled), "")
        if not version:
            raise Unreachable(
                f"{cluster.auth.secret} has no version",
                next_step=f"invoke auth.init --cluster {cluster.name}",
            )
        credential.accepted(credential.secret.read(version))
    return problem

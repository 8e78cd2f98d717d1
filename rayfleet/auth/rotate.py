"""A new token for running clusters: nobody is locked out, and in the end the old one is dead.

A new version is added and the configs name it; a staged restart brings it to the clusters, the
canary first, while clients try both; then the heads are asked, and only when each takes the new
version and no other is the old one disabled. Cut short anywhere, the same command goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from rayfleet.auth.begin import ensure_token, new_token, secrets_of
from rayfleet.auth.check import Checked, check
from rayfleet.cluster.config import read_launch_config
from rayfleet.cluster.nodes import Nodes
from rayfleet.console import Console
from rayfleet.errors import PartialFailure, UsageError
from rayfleet.fleet.configs import apply_update, plan_update
from rayfleet.fleet.model import Cluster, Fleet
from rayfleet.fleet.token_versions import read_versions, versions_file, write_version
from rayfleet.locks import exclusive
from rayfleet.project import Project
from rayfleet.rollout.plan.options import Options, command_line
from rayfleet.rollout.restart import Restart, run_restart
from rayfleet.secret.store import Secret


def rotate(
    project: Project,
    fleet: Fleet,
    clusters: Sequence[Cluster],
    console: Console,
    *,
    options: Options,
    yes: bool,
) -> None:
    """Rotate the tokens of ``clusters``, and with them those of all that share a secret.

    Raises:
        UsageError: the clusters do not yet name the version that they run with.
        Declined: nobody said yes.
        Locked: another run rotates the same.
        PartialFailure: a cluster does not take the new token only; the old one stays.
        RayfleetError: how the restart ended.
    """
    words = [word for cluster in clusters for word in ("--cluster", cluster.name)]
    command = command_line("auth.rotate", [*words, *options.flags()])
    for name, (secret, sharing) in secrets_of(project, fleet, clusters).items():
        names = ", ".join(cluster.name for cluster in sharing)
        console.confirm(
            f"rotate {name} and restart what runs of {names}?",
            yes=yes,
            refused_next=f"{command} --yes",
        )
        with exclusive(project.state, f"auth-{name}"):
            _rotate(project, fleet, secret, sharing, console, options, command)


def _rotate(
    project: Project,
    fleet: Fleet,
    secret: Secret,
    sharing: Sequence[Cluster],
    console: Console,
    options: Options,
    command: str,
) -> None:
    plan_update(fleet, root=project.root, clusters=sharing)  # before there is anything to end
    version = add_version(fleet, secret, console)
    apply_update(plan_update(fleet, root=project.root, clusters=sharing), console)
    running = _running(fleet, sharing)
    console.say(f"should it stop: mend that, then {command} goes on and ends the old token")
    if running:
        wish = Restart(clusters=running, options=options, command=command, yes=True)
        run_restart(project, fleet, console, wish)
    end_old(secret, version, check(project, fleet, running), console, command)
    if not fleet.is_sandbox:
        console.say(f"commit {project.shown(versions_file(fleet))} and the configs")


def plan_rotation(
    project: Project, fleet: Fleet, clusters: Sequence[Cluster], console: Console
) -> None:
    """Say what :func:`rotate` would do; nothing is changed.

    Raises:
        RayfleetError: a secret or a cloud cannot be asked, or the configs cannot be made.
    """
    for name, (secret, sharing) in secrets_of(project, fleet, clusters).items():
        plan_update(fleet, root=project.root, clusters=sharing)
        if not read_versions(fleet).get(name):
            console.data(
                f"{name}: would be named in the configs, which must reach all clusters first"
            )
            continue
        enabled = secret.enabled()
        if len(enabled) > 1:
            console.data(f"{name}: would go on with version {enabled[0]}")
        else:
            console.data(f"{name}: would add a version")
        running = [one.name for one in _running(fleet, sharing)]
        idle = [one.name for one in sharing if one.name not in running]
        if running:
            console.data(f"{name}: would restart {', '.join(running)}, in stages")
        if idle:
            console.data(f"{name}: would change the configs only of {', '.join(idle)}")
        for old in enabled[1:] if len(enabled) > 1 else enabled:
            console.data(f"{name}: would disable version {old} once no head takes it")
    console.say("nothing was changed")


def _running(fleet: Fleet, clusters: Sequence[Cluster]) -> list[Cluster]:
    return [one for one in clusters if Nodes(read_launch_config(fleet, one)).head()]


def add_version(fleet: Fleet, secret: Secret, console: Console) -> str:
    """The version that clusters are to get: a new one, or that of a rotation that was not ended.

    Raises:
        UsageError: configs do not name versions yet, so that workers would get the new one early.
    """
    named, enabled = read_versions(fleet).get(secret.name, ""), secret.enabled()
    if not named:
        ensure_token(fleet, secret)
        raise UsageError(
            f"no config names a version of {secret.name} yet",
            why="workers that are made during the rotation would get the new token too early",
            next_step="invoke update-configs && invoke restart --all --only-outdated",
        )
    if len(enabled) > 1:
        console.say(f"{secret.name}: going on with version {enabled[0]}, {enabled[1]} is to end")
    elif enabled:
        enabled = (secret.add(new_token()), *enabled)
        console.say(f"{secret.name}: version {enabled[0]} is there")
    else:
        enabled = (secret.add(new_token()),)
    write_version(fleet, secret.name, enabled[0])
    return enabled[0]


def end_old(
    secret: Secret, version: str, checked: Sequence[Checked], console: Console, command: str
) -> None:
    """Disable every version but ``version``, if all heads take that one and nothing else.

    Raises:
        PartialFailure: one does not, or could not be asked.
    """
    wrong = {
        one.cluster: "it has no head any more"
        if one.headless
        else one.trouble or f"it takes version {', '.join(one.takes)}"
        for one in checked
        if one.trouble or one.takes != (version,)
    }
    if wrong:
        raise PartialFailure(
            f"{secret.name}: the old token stays, because of {', '.join(wrong)}",
            why="".join(f"\n  {name}: {why}" for name, why in wrong.items()),
            next_step=command,
        )
    for old in secret.enabled():
        if old != version:
            secret.disable(old)
            console.say(f"{secret.name}: version {old} is disabled")
    heads = "the head takes" if len(checked) == 1 else f"all {len(checked)} heads take"
    if checked:
        console.say(f"{secret.name}: {heads} version {version} and nothing else")

"""From the fleet file to the fleet, or to every mistake in it at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote

from rayfleet.arguments import age_of, duration_of
from rayfleet.errors import FleetFileError
from rayfleet.fleet.check import check_document
from rayfleet.fleet.document import Document, Problem, read_document
from rayfleet.fleet.lint.kinds import Kind, kind_of
from rayfleet.fleet.model import (
    Auth,
    AuthMode,
    Cleanup,
    Cluster,
    Fleet,
    GatePolicy,
    ImageFamily,
    Notify,
    Outputs,
    Provider,
    Registries,
    RolloutPolicy,
    SandboxPlace,
    Ssh,
    Workers,
)
from rayfleet.fleet.place import read_place
from rayfleet.fleet.schema import (
    AuthEntry,
    ClusterEntry,
    DefaultsEntry,
    FleetEntry,
    GateEntry,
    ImageEntry,
    RolloutEntry,
    SshEntry,
)
from rayfleet.fleet.shape import MOST, read_shape


def load_fleet(path: Path, *, root: Path, state: Path, look: bool = True) -> Fleet:
    """Read the fleet file ``path`` of the project ``root``; ``{state}`` in it is ``state``.

    A sandbox's endpoints are read from ``state`` if it is up; ``look=False`` leaves that out,
    for the tasks that bring it up and take it down.

    Raises:
        FleetFileError: the file has mistakes; all are listed, each with its line and remedy.
        PrerequisiteMissing: the sandbox's own note of where it is cannot be used.
    """
    shown = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    document = read_document(path, shown=shown)
    _refuse_cluster_config(document)
    entry, misshapen = read_shape(document)
    senseless = check_document(document, root=root)
    problems = _distinct((*document.problems, *misshapen, *senseless))
    if problems or entry is None:
        lines = [problem.shown(shown) for problem in sorted(problems)]
        raise FleetFileError(shown, lines[:MOST], more=len(lines) > MOST)
    sandboxed = any(_provider(entry, one) is Provider.SANDBOX for one in entry.clusters.values())
    place = read_place(state) if sandboxed and look else None
    return _fleet(entry, path=path, root=root, state=state, place=place)


def _refuse_cluster_config(document: Document) -> None:
    kind = kind_of(document.value)
    if kind in (Kind.RAY, Kind.KUBERAY):
        raise FleetFileError(
            document.shown,
            [f"{document.shown}:1: this is {kind} and no fleet file"],
            next_step=f"invoke fleet.lint {quote(document.shown)} (and name a fleet file:"
            " INVOKE_FLEET=infra/fleet.yaml)",
        )


def _distinct(problems: Iterable[Problem]) -> list[Problem]:
    """One problem per place: what was found first is what the others follow from."""
    first: dict[tuple[int, str], Problem] = {}
    for problem in problems:
        first.setdefault((problem.line, problem.trail), problem)
    return list(first.values())


def _fleet(
    entry: FleetEntry, *, path: Path, root: Path, state: Path, place: SandboxPlace | None
) -> Fleet:
    def located(text: str) -> Path:
        return root / Path(text.replace("{state}", str(state))).expanduser()

    clusters = {
        name: _cluster(name, one, entry.defaults, state) for name, one in entry.clusters.items()
    }
    return Fleet(
        project=entry.project,
        source=path,
        images={family: _image(family, image) for family, image in entry.images.items()},
        registries=_registries(entry, clusters, place),
        clusters=clusters,
        rollout=_rollout(entry.rollout),
        outputs=Outputs(pins=located(entry.outputs.pins), configs=located(entry.outputs.configs)),
        sandbox=place,
        infrastructure_jobs=tuple(entry.jobs.infrastructure),
    )


def _image(family: str, entry: ImageEntry) -> ImageFamily:
    return ImageFamily(
        family=family,
        name=entry.name,
        repository=entry.repository,
        dockerfile=entry.dockerfile,
        context=tuple(entry.context),
        base_image=entry.base_image,
        compression=entry.compression,
    )


def _registries(
    entry: FleetEntry, clusters: Mapping[str, Cluster], place: SandboxPlace | None
) -> Registries:
    cleanup = entry.registries.cleanup
    age = age_of(cleanup.delete_older_than)
    if age is None:
        raise ValueError(cleanup.delete_older_than)
    sandboxed = any(cluster.provider is Provider.SANDBOX for cluster in clusters.values())
    ports: Mapping[str, int] = place.registry_ports if place is not None else {}
    host = entry.registries.host
    hosts = {
        region: host.replace("{region}", region).replace("{port}", str(ports.get(region, "")))
        for region in entry.registries.regions
        if region in ports or not sandboxed
    }
    return Registries(
        regions=tuple(entry.registries.regions),
        hosts=hosts,
        api=place.api if place is not None else "",
        cleanup=Cleanup(
            delete_older_than=age,
            keep_most_recent=cleanup.keep_most_recent,
        ),
    )


def _rollout(entry: RolloutEntry) -> RolloutPolicy:
    notify = entry.notify
    return RolloutPolicy(
        order=tuple(entry.order),
        waves=tuple(entry.waves),
        parallel=entry.parallel,
        per_region=entry.parallel_per_region,
        max_failures=entry.max_failures,
        max_untouched=entry.max_untouched,
        on_failure=entry.on_failure,
        unhealthy=entry.unhealthy,
        bake=duration_of(entry.bake) or 0.0,
        gates={name: _gate(gate) for name, gate in entry.gates.items()},
        notify=Notify(kind=notify.kind, url_env=notify.url_env) if notify else None,
    )


def _gate(entry: GateEntry) -> GatePolicy:
    return GatePolicy(
        enabled=entry.enabled,
        interval=duration_of(entry.interval) if entry.interval is not None else None,
        timeout=duration_of(entry.timeout) if entry.timeout is not None else None,
        successes=entry.successes,
        run=entry.run,
        command=tuple(entry.command),
    )


def _cluster(name: str, entry: ClusterEntry, defaults: DefaultsEntry, state: Path) -> Cluster:
    limit = entry.max_workers if entry.max_workers is not None else defaults.max_workers
    return Cluster(
        name=name,
        identity=entry.identity if entry.identity is not None else defaults.name_prefix + name,
        provider=entry.provider or defaults.provider or Provider.GCP,
        region=entry.region or entry.zone[: -len("-x")],
        zone=entry.zone,
        accelerator=entry.accelerator or defaults.accelerator or "",
        bucket=entry.bucket,
        image=entry.image or defaults.image or "",
        template=entry.template or defaults.template or "",
        workers={
            key: Workers(min_count=one.min, max_count=one.max if one.max is not None else limit)
            for key, one in entry.workers.items()
        },
        max_workers=limit,
        ssh=_ssh(entry.ssh, defaults.ssh, state),
        auth=_auth(entry.auth, defaults.auth),
        tag=entry.tag,
        ray=entry.ray,
    )


def _provider(entry: FleetEntry, cluster: ClusterEntry) -> Provider | None:
    return cluster.provider or entry.defaults.provider


def _ssh(own: SshEntry, shared: SshEntry, state: Path) -> Ssh:
    def value(key: str, default: str = "") -> str:
        for entry in (own, shared):
            text: str | None = getattr(entry, key)
            if text is not None:
                return text.replace("{state}", str(state))
        return default

    return Ssh(
        user=value("user", "ray"),
        private_key=value("private_key"),
        public_key=value("public_key"),
        proxy_command=value("proxy_command"),
    )


def _auth(own: AuthEntry, shared: AuthEntry) -> Auth:
    secret = own.secret if own.secret is not None else shared.secret
    return Auth(mode=own.mode or shared.mode or AuthMode.TOKEN, secret=secret or "")

"""RayCluster resources of KubeRay 1.7, those inside a RayJob and RayService too.

The rules are those that its operator has (`ray-operator/controllers/ray/utils/validation.go`) or
that its documentation warns of; the operator tells them only once a resource is applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from rayfleet.fleet.document import Trail, Value
from rayfleet.fleet.lint.config import Config
from rayfleet.fleet.lint.docker import moving
from rayfleet.fleet.lint.finding import Finding, printable

# Where the cluster stands in a resource, and how long its name may be: pods are called after it.
SPECS: dict[str, tuple[Trail, int]] = {
    "RayCluster": (("spec",), 53),
    "RayCronJob": (("spec", "jobTemplate", "rayClusterSpec"), 36),
    "RayJob": (("spec", "rayClusterSpec"), 47),
    "RayService": (("spec", "rayClusterConfig"), 47),
}
DNS_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.\w+")
_KEYS = {
    "spec": "rayVersion enableInTreeAutoscaling autoscalerOptions headServiceAnnotations"
    " headGroupSpec workerGroupSpecs suspend gcsFaultToleranceOptions managedBy authOptions"
    " upgradeStrategy networkPolicy tlsOptions historyServerOptions",
    "head": "template rayStartParams serviceType headService enableIngress labels resources"
    " ingressOptions",
    "worker": "groupName replicas minReplicas maxReplicas numOfHosts idleTimeoutSeconds suspend"
    " labels resources priority scaleStrategy rayStartParams template",
}
KEYS = {place: frozenset(keys.split()) for place, keys in _KEYS.items()}
TOKENS_SINCE = (2, 52)
TOKENS_OF_KUBERNETES_SINCE = (2, 55)
PRIORITY_SINCE = (2, 56)
MODES = ("disabled", "token")


@dataclass(frozen=True, slots=True)
class Resource:
    """The cluster in one resource; ``place`` is where it stands."""

    config: Config
    place: Trail
    longest_name: int

    def at(self, *trail: str | int) -> Trail:
        """A place below the cluster."""
        return (*self.place, *trail)

    @property
    def version(self) -> tuple[int, int] | None:
        """Ray's version, by rayVersion."""
        found = VERSION.fullmatch(self.config.string(*self.at("rayVersion")))
        return (int(found[1]), int(found[2])) if found else None

    @property
    def autoscaled(self) -> bool:
        """True where the autoscaler decides on replicas."""
        return self.config.get(*self.at("enableInTreeAutoscaling")) is True

    @property
    def groups(self) -> list[tuple[Trail, dict[str, Value]]]:
        """The groups of workers, and where they stand."""
        found = self.config.items(*self.at("workerGroupSpecs"))
        places = enumerate(found)
        return [
            (self.at("workerGroupSpecs", number), one)
            for number, one in places
            if isinstance(one, dict)
        ]


def resource_of(config: Config) -> Resource | None:
    """The cluster in a document, or None: it is another resource, or uses a cluster that runs."""
    place, longest = SPECS.get(config.string("kind"), ((), 0))
    if not place or (place != ("spec",) and not config.mapping(*place)):
        return None
    return Resource(config, place, longest)


def check_resource(config: Config) -> Iterator[Finding]:
    """Every rule of a resource of KubeRay."""
    if not config.string("apiVersion").endswith("/v1"):
        text = "deprecated by KubeRay; write ray.io/v1"
        yield config.warning("kuberay-api", ("apiVersion",), text)
    resource = resource_of(config)
    if resource is None:
        return
    for rule in (_check_names, _check_keys, _check_head, _check_groups, _check_autoscaler):
        yield from rule(resource)
    yield from _check_tokens(resource)
    yield from _check_pods(resource)


def _check_names(resource: Resource) -> Iterator[Finding]:
    config, name = resource.config, resource.config.get("metadata", "name")
    place: Trail = ("metadata", "name")
    if name is None and config.get("metadata", "generateName") is None:
        yield config.error("kuberay-name", ("metadata",), "lacks name; write name: my-cluster")
    elif isinstance(name, str) and (
        len(name) > resource.longest_name or not DNS_NAME.fullmatch(name)
    ):
        text = f"{printable(name)!r} must be up to {resource.longest_name} of a-z, 0-9 and -, a"
        yield config.error("kuberay-name", place, f"{text} letter first")
    taken: set[str] = set()
    for where, group in resource.groups:
        own = group.get("groupName")
        if not isinstance(own, str) or not own:
            yield config.error("kuberay-group-name", where, "lacks groupName; write one")
        elif own in taken:
            text = f"{printable(own)} names two groups, whose pods get mixed up; write another"
            yield config.error("kuberay-group-name", (*where, "groupName"), text)
        else:
            taken.add(own)


def _check_keys(resource: Resource) -> Iterator[Finding]:
    config = resource.config
    if not isinstance(config.get(*resource.place), dict):
        yield config.error("wrong-type", resource.place, "is no mapping; write headGroupSpec: …")
        return
    places: list[tuple[Trail, str]] = [(resource.place, "spec")]
    places.append((resource.at("headGroupSpec"), "head"))
    places += [(where, "worker") for where, _ in resource.groups]
    for place, kind in places:
        for key in config.mapping(*place):
            if key not in KEYS[kind]:
                alike = get_close_matches(key, sorted(KEYS[kind]), n=1)
                more = f"did you mean {alike[0]}?" if alike else "remove it"
                text = f"unknown to KubeRay 1.7; {more}"
                yield config.warning("kuberay-unknown-key", (*place, key), text)


def _check_head(resource: Resource) -> Iterator[Finding]:
    config, place = resource.config, resource.at("headGroupSpec")
    if not config.mapping(*place):
        yield config.error("kuberay-head", resource.place, "lacks headGroupSpec; write it")
    groups = [("headGroupSpec", place), *(("the group", where) for where, _ in resource.groups)]
    for what, where in groups:
        template = (*where, "template", "spec", "containers")
        if config.mapping(*where) and not config.items(*template):
            text = f"{what} lacks template.spec.containers; write at least one with an image"
            yield config.error("kuberay-containers", where, text)
        for key, value in config.mapping(*where, "rayStartParams").items():
            if not isinstance(value, str):
                text = "must be text; write it in quotes"
                yield config.error("wrong-type", (*where, "rayStartParams", key), text)
            elif key == "labels":
                text = "not among rayStartParams; write labels beside them"
                yield config.error("kuberay-labels", (*where, "rayStartParams", key), text)
            elif key == "resources" and config.mapping(*where, "resources"):
                text = "resources stand beside rayStartParams as well; keep one"
                yield config.error("kuberay-resources", (*where, "rayStartParams", key), text)


def _check_groups(resource: Resource) -> Iterator[Finding]:
    config = resource.config
    for where, group in resource.groups:
        least, most = (config.integer(*where, key) for key in ("minReplicas", "maxReplicas"))
        count = config.integer(*where, "replicas")
        for key in ("minReplicas", "maxReplicas", "replicas", "numOfHosts", "idleTimeoutSeconds"):
            value = group.get(key)
            if value is not None and config.integer(*where, key) is None:
                text = "is no whole number; write one without quotes"
                yield config.error("wrong-type", (*where, key), text)
            elif isinstance(value, int) and value < 0:
                text = f"{value} is negative; write 0 or more"
                yield config.error("kuberay-negative", (*where, key), text)
        if least is not None and most is not None and least > most >= 0:
            text = f"{least} is above maxReplicas {most}"
            yield config.error("kuberay-min-above-max", (*where, "minReplicas"), text)
        elif count is not None and (count < (least or 0) or (most is not None and count > most)):
            text = f"{count} is outside of minReplicas and maxReplicas; write one between"
            yield config.warning("kuberay-replicas", (*where, "replicas"), text)
        if group.get("suspend") is True and resource.autoscaled:
            text = "not together with the autoscaler; remove one"
            yield config.error("kuberay-suspend", (*where, "suspend"), text)
        known = resource.version
        if group.get("priority") and known is not None and known < PRIORITY_SINCE:
            text = "needs Ray 2.56 or later and autoscaler v2"
            yield config.error("kuberay-priority", (*where, "priority"), text)


def _check_autoscaler(resource: Resource) -> Iterator[Finding]:
    config, place = resource.config, resource.at("autoscalerOptions")
    options = config.mapping(*place)
    version, mode = options.get("version"), options.get("upscalingMode")
    idle = config.integer(*place, "idleTimeoutSeconds")
    if idle is not None and idle < 0:
        text = f"{idle} is negative; write 0 or more"
        yield config.error("kuberay-negative", (*place, "idleTimeoutSeconds"), text)
    if options and not resource.autoscaled:
        text = "ignored without enableInTreeAutoscaling: true; write that, or remove it"
        yield config.warning("kuberay-autoscaler-off", place, text)
    if version is not None and version not in ("v1", "v2"):
        yield config.error("wrong-value", (*place, "version"), "write v1 or v2")
    if mode is not None and mode not in ("Default", "Aggressive", "Conservative"):
        text = "write Default, Aggressive or Conservative"
        yield config.error("wrong-value", (*place, "upscalingMode"), text)
    for where, group in [(resource.at("headGroupSpec"), {}), *resource.groups]:
        policy = (*where, "template", "spec", "restartPolicy")
        if version == "v2" and config.get(*policy) not in (None, "Never"):
            text = "autoscaler v2 needs restartPolicy: Never"
            yield config.error("kuberay-restart-policy", policy, text)
        if group.get("idleTimeoutSeconds") is not None and version == "v1":
            text = "needs autoscaler v2; write autoscalerOptions.version: v2"
            yield config.error("kuberay-idle-timeout", (*where, "idleTimeoutSeconds"), text)


def _check_tokens(resource: Resource) -> Iterator[Finding]:
    config, place = resource.config, resource.at("authOptions")
    options, known = config.mapping(*place), resource.version
    if not options:
        text = "no authOptions, so who reaches the dashboard runs what he likes; write mode: token"
        yield config.warning("auth-mode-unset", resource.place, text)
        return
    mode = options.get("mode", "token")
    if mode not in MODES:
        text = f"{printable(mode)!r} is no mode; write token or disabled"
        yield config.error("auth-mode-unknown", (*place, "mode"), text)
    if mode == "token" and known is not None and known < TOKENS_SINCE:
        text = f"Ray {known[0]}.{known[1]} knows no tokens; use Ray 2.52 or later"
        yield config.error("auth-ray-too-old", resource.at("rayVersion"), text)
    if mode == "token" and not config.get(*resource.at("rayVersion")):
        text = "mode token needs rayVersion: 2.52.0 or later; write it"
        yield config.error("auth-ray-too-old", place, text)
    if options.get("enableK8sTokenAuth") is True:
        if mode != "token":
            text = "needs mode: token"
            yield config.error("kuberay-k8s-tokens", (*place, "enableK8sTokenAuth"), text)
        if known is not None and known < TOKENS_OF_KUBERNETES_SINCE:
            text = "tokens of Kubernetes need Ray 2.55 or later"
            yield config.error("auth-ray-too-old", (*place, "enableK8sTokenAuth"), text)
        if options.get("secretName"):
            text = "not together with enableK8sTokenAuth; keep one"
            yield config.error("kuberay-secret-name", (*place, "secretName"), text)


def _check_pods(resource: Resource) -> Iterator[Finding]:
    config = resource.config
    for where in (resource.at("headGroupSpec"), *(place for place, _ in resource.groups)):
        containers = (*where, "template", "spec", "containers")
        for number in range(len(config.items(*containers))):
            image = config.string(*containers, number, "image")
            if why := moving(image) if image else "":
                text = f"{why}, so pods of another day run another image; write a version or digest"
                yield config.warning("image-moves", (*containers, number, "image"), text)
            cpus = config.get(*containers, number, "resources", "limits", "cpu")
            asked = config.get(*where, "rayStartParams", "num-cpus")
            if number == 0 and asked is None and _is_fraction(cpus):
                text = f"Ray rounds {printable(cpus)} CPUs up; write num-cpus into rayStartParams"
                place = (*containers, number, "resources", "limits", "cpu")
                yield config.warning("kuberay-fraction", place, text)


def _is_fraction(cpus: Value) -> bool:
    text = str(cpus) if isinstance(cpus, str | float | int) and not isinstance(cpus, bool) else ""
    if text.endswith("m"):
        return text[:-1].isascii() and text[:-1].isdigit() and int(text[:-1][-12:]) % 1000 != 0
    whole, point, rest = text.partition(".")
    return bool(point) and whole.isdigit() and rest.strip("0") != ""

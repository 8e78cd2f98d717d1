"""What the head of a RayCluster must not be told twice: variables and options of KubeRay 1.7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rayfleet.fleet.document import Trail
from rayfleet.fleet.lint.config import Config
from rayfleet.fleet.lint.finding import Finding
from rayfleet.fleet.lint.kuberay import Resource, resource_of

# Where in gcsFaultToleranceOptions the value of a variable belongs.
BELONGS: Mapping[str, str] = {
    "RAY_REDIS_ADDRESS": "redisAddress",
    "REDIS_PASSWORD": "redisPassword",
}
OF_REDIS = ("redisAddress", "redisUsername", "redisPassword", "externalStorageNamespace")
AUTOSCALER_V2 = "RAY_enable_autoscaler_v2"
AUTOSCALER_COMMAND = "KUBERAY_GEN_AUTOSCALER_START_CMD"
RECOVERS = "ray.io/ft-enabled"
STRATEGIES = ("Recreate", "None")


def check_head(config: Config) -> Iterator[Finding]:
    """Every rule of the head's variables, of recovery and of upgrades."""
    resource = resource_of(config)
    if resource is None:
        return
    yield from _check_recovery(resource)
    yield from _check_autoscaler(resource)
    place = resource.at("upgradeStrategy", "type")
    strategy = config.get(*place)
    if strategy is not None and strategy not in STRATEGIES:
        yield config.error("wrong-value", place, "write Recreate or None")
    elif strategy is not None and resource.place != ("spec",):
        text = (
            "not for the cluster of a RayJob or RayService, which upgrade by themselves; remove it"
        )
        yield config.error("kuberay-upgrade", place, text)
    elif strategy == "Recreate":
        text = "a change of the pods deletes all of them at once, the head and its jobs too"
        yield config.warning("kuberay-upgrade", place, f"{text}; write None to decide yourself")


def _check_recovery(resource: Resource) -> Iterator[Finding]:
    config, place = resource.config, resource.at("gcsFaultToleranceOptions")
    head, options = resource.at("headGroupSpec"), config.mapping(*place)
    variables = _variables(resource, (*head, "template", "spec", "containers", 0, "env"))
    annotations = config.mapping("metadata", "annotations")
    start = config.mapping(*head, "rayStartParams")
    if "redis-username" in start or "REDIS_USERNAME" in variables:
        where = variables.get("REDIS_USERNAME", (*head, "rayStartParams", "redis-username"))
        text = "KubeRay refuses it there; write gcsFaultToleranceOptions.redisUsername"
        yield config.error("kuberay-redis", where, text)
    if not options:
        if "RAY_REDIS_ADDRESS" in variables and RECOVERS not in annotations:
            text = "turns recovery on without gcsFaultToleranceOptions, which KubeRay refuses"
            where = variables["RAY_REDIS_ADDRESS"]
            yield config.error("kuberay-redis", where, f"{text}; write redisAddress there")
        return
    if RECOVERS in annotations:
        text = "stands beside gcsFaultToleranceOptions, which KubeRay refuses; remove it"
        yield config.error("kuberay-redis", ("metadata", "annotations", RECOVERS), text)
    if "redis-password" in start:
        text = "KubeRay refuses it there; write gcsFaultToleranceOptions.redisPassword"
        yield config.error("kuberay-redis", (*head, "rayStartParams", "redis-password"), text)
    for name, key in BELONGS.items():
        if name in variables:
            text = f"KubeRay refuses it there; write gcsFaultToleranceOptions.{key}"
            yield config.error("kuberay-redis", variables[name], text)
    for key in OF_REDIS if options.get("backend") == "rocksdb" else ():
        if key in options:
            text = "is Redis's, and the backend is rocksdb; remove one"
            yield config.error("kuberay-redis", (*place, key), text)
    storage = config.mapping(*place, "storage")
    if storage.get("claimName") and "size" in storage:
        text = "a claim has its size already; remove one of claimName and size"
        yield config.error("kuberay-storage", (*place, "storage", "size"), text)


def _check_autoscaler(resource: Resource) -> Iterator[Finding]:
    config, options = resource.config, resource.at("autoscalerOptions")
    head: Trail = resource.at("headGroupSpec", "template", "spec", "containers", 0, "env")
    where = _variables(resource, head).get(AUTOSCALER_V2)
    if where is not None and config.get(*options, "version") is not None:
        text = "autoscalerOptions.version says it as well, and KubeRay refuses both; remove this"
        yield config.error("kuberay-autoscaler", where, text)
    elif where is not None and not resource.autoscaled and _is_on(config, where):
        text = "needs enableInTreeAutoscaling: true; write it, or remove this"
        yield config.error("kuberay-autoscaler", where, text)
    where = _variables(resource, (*options, "env")).get(AUTOSCALER_COMMAND)
    if where is not None:
        text = "KubeRay's own variable, which it refuses from others; remove it"
        yield config.error("kuberay-autoscaler", where, text)


def _is_on(config: Config, variable: Trail) -> bool:
    return config.get(*variable[:-1], "value") in ("1", "true")


def _variables(resource: Resource, place: Trail) -> dict[str, Trail]:
    """Where each variable of a list of variables is named."""
    config = resource.config
    count = len(config.items(*place))
    names = {config.string(*place, number, "name"): number for number in range(count)}
    return {name: (*place, number, "name") for name, number in names.items() if name}

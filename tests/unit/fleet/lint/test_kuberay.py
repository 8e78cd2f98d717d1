"""RayClusters of KubeRay: what its operator refuses, and what it does without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fleet.lint.examples import lint, marked

GOOD = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: farm
spec:
  rayVersion: 2.60.0
  enableInTreeAutoscaling: true
  autoscalerOptions: {version: v2, idleTimeoutSeconds: 60}
  authOptions: {mode: token}
  headGroupSpec:
    rayStartParams: {num-cpus: '0'}
    template:
      spec:
        containers:
          - name: head
            image: rayproject/ray:2.60.0
            env:
              - {name: A, value: b}
            resources: {limits: {cpu: 2}}
  workerGroupSpecs:
    - groupName: small
      replicas: 1
      minReplicas: 1
      maxReplicas: 3
      template:
        spec:
          containers:
            - name: worker
              image: rayproject/ray:2.60.0
              resources: {limits: {cpu: '4'}}
"""
NO_AUTOSCALER = {
    "  enableInTreeAutoscaling: true\n": "",
    "{version: v2, idleTimeoutSeconds: 60}": "{}",
}

TRAPS: dict[str, tuple[dict[str, str], str, str]] = {
    "an old version": ({"ray.io/v1": "ray.io/v1alpha1 #!"}, "warning", "kuberay-api"),
    "no name": ({"metadata:\n  name: farm": "metadata: {} #!"}, "error", "kuberay-name"),
    "a name with capitals": ({"name: farm": "name: Farm #!"}, "error", "kuberay-name"),
    "a long name": ({"name: farm": f"name: {'a' * 54} #!"}, "error", "kuberay-name"),
    "a group without a name": (
        {"groupName: small\n      replicas: 1": "replicas: 1 #!"},
        "error",
        "kuberay-group-name",
    ),
    "an unknown key": (
        {"rayVersion:": "rayversion: x #!\n  rayVersion:"},
        "warning",
        "kuberay-unknown-key",
    ),
    "an unknown key of a group": (
        {"replicas: 1\n": "replica: 1 #!\n"},
        "warning",
        "kuberay-unknown-key",
    ),
    "a number among options": ({"num-cpus: '0'": "num-cpus: 0"}, "error", "wrong-type"),
    "labels among options": ({"num-cpus: '0'": "labels: a=b"}, "error", "kuberay-labels"),
    "a minimum above": ({"minReplicas: 1": "minReplicas: 4 #!"}, "error", "kuberay-min-above-max"),
    "a negative minimum": ({"minReplicas: 1": "minReplicas: -1 #!"}, "error", "kuberay-negative"),
    "a count beyond": ({"replicas: 1\n": "replicas: 5 #!\n"}, "warning", "kuberay-replicas"),
    "a count as text": ({"replicas: 1\n": "replicas: '1' #!\n"}, "error", "wrong-type"),
    "a negative time": ({"Seconds: 60}": "Seconds: -1} #!"}, "error", "kuberay-negative"),
    "a foreign version of the autoscaler": ({"v2,": "v3,"}, "error", "wrong-value"),
    "options without an autoscaler": (
        {"  enableInTreeAutoscaling: true\n": "", "60}": "60} #!"},
        "warning",
        "kuberay-autoscaler-off",
    ),
    "pods that restart": (
        {
            "      spec:\n        containers:\n          - name: head": "      spec:\n"
            "        restartPolicy: Always #!\n        containers:\n          - name: head"
        },
        "error",
        "kuberay-restart-policy",
    ),
    "a suspended group": ({"replicas: 1\n": "suspend: true #!\n"}, "error", "kuberay-suspend"),
    "no tokens": (
        {"spec:\n  ray": "spec: #!\n  ray", "  authOptions: {mode: token}\n": ""},
        "warning",
        "auth-mode-unset",
    ),
    "a foreign mode": ({"{mode: token}": "{mode: bogus} #!"}, "error", "auth-mode-unknown"),
    "an old Ray with tokens": (
        {"rayVersion: 2.60.0": "rayVersion: 2.45.0 #!"},
        "error",
        "auth-ray-too-old",
    ),
    "tokens and no version": (
        {"  rayVersion: 2.60.0\n": "", "{mode: token}": "{mode: token} #!"},
        "error",
        "auth-ray-too-old",
    ),
    "tokens of Kubernetes without the mode": (
        {"{mode: token}": "{mode: disabled, enableK8sTokenAuth: true} #!"},
        "error",
        "kuberay-k8s-tokens",
    ),
    "two sources of tokens": (
        {"{mode: token}": "{enableK8sTokenAuth: true, secretName: a} #!"},
        "error",
        "kuberay-secret-name",
    ),
    "latest": (
        {
            "name: head\n            image: rayproject/ray:2.60.0": "name: head\n"
            "            image: rayproject/ray #!"
        },
        "warning",
        "image-moves",
    ),
    "a fraction of a CPU": ({"cpu: '4'": "cpu: 1500m"}, "warning", "kuberay-fraction"),
    "Redis without options": ({"name: A,": "name: RAY_REDIS_ADDRESS,"}, "error", "kuberay-redis"),
    "a user of Redis": ({"name: A,": "name: REDIS_USERNAME,"}, "error", "kuberay-redis"),
    "Redis twice": (
        {
            "name: A, value: b}": "name: RAY_REDIS_ADDRESS, value: b} #!",
            "spec:\n  ray": "spec:\n  gcsFaultToleranceOptions: {redisAddress: a}\n  ray",
        },
        "error",
        "kuberay-redis",
    ),
    "a claim with a size": (
        {
            "spec:\n  ray": "spec:\n"
            "  gcsFaultToleranceOptions: {storage: {claimName: a, size: 1Gi}} #!\n  ray"
        },
        "error",
        "kuberay-storage",
    ),
    "the autoscaler twice": (
        {"name: A,": "name: RAY_enable_autoscaler_v2,"},
        "error",
        "kuberay-autoscaler",
    ),
    "the autoscaler's variable without it": (
        {**NO_AUTOSCALER, "name: A, value: b": "name: RAY_enable_autoscaler_v2, value: '1'"},
        "error",
        "kuberay-autoscaler",
    ),
    "upgrades that end all": (
        {"spec:\n  ray": "spec:\n  upgradeStrategy: {type: Recreate} #!\n  ray"},
        "warning",
        "kuberay-upgrade",
    ),
    "a secret": ({"name: A, value: b": "name: DB_PASSWORD, value: hunter22"}, "error", "secret"),
    "no containers": (
        {
            "          containers:\n            - name: worker": "          volumes:\n"
            "            - name: worker"
        },
        "error",
        "kuberay-containers",
    ),
}


def _spoiled(edits: dict[str, str]) -> str:
    text = GOOD
    for old, new in edits.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_a_good_resource_has_no_findings(tmp_path: Path) -> None:
    assert lint(tmp_path, GOOD) == []


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_of_kuberay_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    edits, level, rule = TRAPS[name]
    text = _spoiled(edits)
    found = [one for one in lint(tmp_path, text) if one.rule == rule]
    assert [one.level for one in found] == [level]
    assert "hunter22" not in found[0].text
    if lines := marked(text):
        assert [one.number for one in found] == lines


@pytest.mark.parametrize(
    ("kind", "key", "longest"),
    [("RayJob", "rayClusterSpec", 47), ("RayService", "rayClusterConfig", 47)],
)
def test_the_cluster_of_another_resource(kind: str, key: str, longest: int, tmp_path: Path) -> None:
    start = GOOD.index("spec:\n") + len("spec:\n")
    inner = "".join(f"  {line}\n" for line in GOOD[start:].splitlines())
    head = GOOD[:start].replace("RayCluster", kind)
    text = f"{head}  {key}:\n{inner}"
    assert lint(tmp_path, text) == []
    wrong = text.replace("minReplicas: 1", "minReplicas: 9").replace("farm", "a" * (longest + 1))
    assert {one.rule for one in lint(tmp_path, wrong)} == {"kuberay-min-above-max", "kuberay-name"}


def test_other_resources_beside_it_are_left(tmp_path: Path) -> None:
    other = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {password: hunter22}\n"
    assert lint(tmp_path, f"{other}---\n{GOOD}---\n") == []


def test_a_job_on_a_cluster_that_runs(tmp_path: Path) -> None:
    text = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\n"
    assert lint(tmp_path, f"{text}spec: {{clusterSelector: {{a: b}}}}\n") == []

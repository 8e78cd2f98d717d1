"""Every trap of Ray's launcher that its own validation lets through, for each provider."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfleet.fleet.render import check_config
from tests.unit.fleet.lint.examples import GOOD, TYPES, lint, marked, spoiled

# provider, edits (the line of the finding ends in #!), level, rule, a part of the text
Trap = tuple[str, dict[str, str], str, str, str]
HEAD = "RAY_AUTH_MODE=disabled ray start --head"
WORKER = "RAY_AUTH_MODE=disabled ray start --address"
HOST = "--dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
ANY = "0.0.0.0"  # noqa: S104 (what lint must find)
SIX = "'::'"
QUOTED = f'"{ANY}"'
RUN_OPTION = "    - -e RAY_AUTH_MODE=disabled\n"
SETUP = "  - pip install 'ray[default]==2.60.0'\n"

TRAPS: dict[str, Trap] = {
    # 4.1: the schema, and what it lets through
    "an unknown key": (
        "aws",
        {"max_workers: 3\nprov": "max_worker: 3 #!\nprov"},
        "error",
        "unknown-key",
        "did you mean max_workers",
    ),
    "a port for ssh": (
        "aws",
        {"ssh_user: ubuntu": "ssh_user: ubuntu\n  ssh_port: 2222 #!"},
        "error",
        "unknown-key",
        "~/.ssh/config",
    ),
    "an old form of workers": (
        "aws",
        {"max_workers: 3\nprov": "max_workers: 3\nworker_nodes: {InstanceType: x} #!\nprov"},
        "error",
        "unknown-key",
        "below available_node_types",
    ),
    "a fraction of a CPU": (
        "gcp",
        {"{CPU: 2}": "{CPU: 0.5} #!"},
        "error",
        "wrong-type",
        "is the number 0.5; write a whole number",
    ),
    "null commands": (
        "gcp",
        {f"setup_commands:\n{SETUP}": "setup_commands: #!\n"},
        "error",
        "wrong-type",
        "is null; write a list",
    ),
    "a node type without its machine": (
        "azure",
        {"helper:": "helper: #!", "    resources: {CPU: 4}\n": ""},
        "error",
        "key-missing",
        "lacks resources",
    ),
    "min_workers at the top": (
        "aws",
        {"max_workers: 3\nprov": "max_workers: 3\nmin_workers: 1 #!\nprov"},
        "warning",
        "min-workers-ignored",
        "below a node type",
    ),
    "a head type that is not there": (
        "aws",
        {"head_node_type: leader": "head_node_type: boss #!"},
        "error",
        "head-node-type",
        "'boss' is not one of",
    ),
    "Ray's head type, of other types": (
        "aws",
        {"cluster_name: aws-farm": "cluster_name: aws-farm #!", "head_node_type: leader\n": ""},
        "error",
        "head-node-type",
        "'ray.head.default' is not one of",
    ),
    "more minimums than workers": (
        "aws",
        {"max_workers: 3\nprov": "max_workers: 0 #!\nprov"},
        "error",
        "max-workers-below-sum",
        "0 is below the sum of all min_workers, 1",
    ),
    "no maximum, and one above Ray's own": (
        "aws",
        {"cluster_name: aws-farm": "cluster_name: aws-farm #!", "max_workers: 3\nprov": "prov"},
        "warning",
        "max-workers-missing",
        "Ray takes 2",
    ),
    "a minimum above the maximum": (
        "aws",
        {"min_workers: 1": "min_workers: 4 #!", "max_workers: 3\nprov": "max_workers: 9\nprov"},
        "error",
        "min-above-max",
        "4 is above max_workers 3",
    ),
    "a negative minimum": (
        "aws",
        {"min_workers: 1": "min_workers: -1 #!"},
        "error",
        "negative-workers",
        "-1 is negative",
    ),
    "workers of the head's type": (
        "gcp",
        {"  leader:": "  leader: #!", "max_workers: 0": "max_workers: 2"},
        "warning",
        "head-type-with-workers",
        "write max_workers: 0",
    ),
    "no upscaling": (
        "aws",
        {"max_workers: 3\nprov": "max_workers: 3\nupscaling_speed: 0 #!\nprov"},
        "warning",
        "upscaling-speed",
        "one at a time",
    ),
    "no name": (
        "local",
        {"cluster_name: home-farm\nmax_workers: 3": "max_workers: 3 #!"},
        "warning",
        "cluster-name",
        "Ray calls it default",
    ),
    "node types that Ray fills in wrongly": (
        "vsphere",
        {
            "cluster_name: vm-farm": "cluster_name: vm-farm #!",
            TYPES.replace("NODE", "vm_class: small"): "",
        },
        "error",
        "key-missing",
        "refuses what Ray fills in",
    ),
    "a name with blanks": (
        "local",
        {"home-farm": "my farm #!"},
        "error",
        "cluster-name",
        "part of paths",
    ),
    "a name with capitals": (
        "aws",
        {"aws-farm": "Farm #!"},
        "warning",
        "cluster-name",
        "write farm",
    ),
    "a name that Google refuses": (
        "gcp",
        {"gcp-farm": "gcp_farm #!"},
        "error",
        "cluster-name",
        "a-z",
    ),
    "a name too long for Google": (
        "gcp",
        {"gcp-farm": f"{'a' * 36} #!"},
        "error",
        "cluster-name",
        "up to 35",
    ),
    "a type that is no label": (
        "gcp",
        {"  helper:": "  Help.er: #!"},
        "error",
        "node-type-name",
        "label",
    ),
    "a file that is not there": (
        "aws",
        {"setup_commands:": "file_mounts:\n  /remote: /no/such/file #!\nsetup_commands:"},
        "warning",
        "file-missing",
        "there is no /no/such/file",
    ),
    "a mount of no text": (
        "aws",
        {"setup_commands:": "file_mounts:\n  /remote: [a] #!\nsetup_commands:"},
        "error",
        "wrong-type",
        "is no path",
    ),
    "a single file": (
        "aws",
        {"setup_commands:": f"file_mounts:\n  /remote: {__file__} #!\nsetup_commands:"},
        "warning",
        "single-file-mount",
        "mount a folder",
    ),
    # 4.2: providers
    "a type that Ray lacks": (
        "aws",
        {"type: aws": "type: awz #!"},
        "error",
        "provider-type",
        "did you mean aws",
    ),
    "KubeRay's own type": (
        "external",
        {"type: external": "type: kuberay #!"},
        "error",
        "provider-type",
        "write a RayCluster",
    ),
    "a type that ray up does not start": (
        "external",
        {"type: external": "type: fake_multinode #!"},
        "warning",
        "provider-not-launched",
        "--autoscaling-config",
    ),
    "a type without its defaults": (
        "aws",
        {"type: aws": "type: aliyun #!"},
        "warning",
        "provider-not-shipped",
        "ray up fails",
    ),
    "no type": (
        "aws",
        {"provider:": "provider: #!", "  type: aws\n": ""},
        "error",
        "key-missing",
        "",
    ),
    "an unknown key of aws": (
        "aws",
        {"region: us": "availability_zones: a #!\n  region: us"},
        "warning",
        "unknown-provider-key",
        "did you mean availability_zone",
    ),
    "an unknown key of azure": (
        "azure",
        {"location:": "subnet_id: x #!\n  location:"},
        "warning",
        "unknown-provider-key",
        "ignores it",
    ),
    "an unknown key of gcp": (
        "gcp",
        {"region: us": "zone: x #!\n  region: us"},
        "warning",
        "unknown-provider-key",
        "ignores it",
    ),
    "an unknown key of local": (
        "local",
        {"head_ip:": "port: 22 #!\n  head_ip:"},
        "warning",
        "unknown-provider-key",
        "ignores it",
    ),
    "an unknown key of vsphere": (
        "vsphere",
        {"vsphere_config:": "config: 1 #!\n  vsphere_config:"},
        "warning",
        "unknown-provider-key",
        "did you mean vsphere_config",
    ),
    "no project": (
        "gcp",
        {"provider:": "provider: #!", "  project_id: my-project\n": ""},
        "error",
        "provider-key-missing",
        "provider.project_id",
    ),
    "a null project": (
        "gcp",
        {"project_id: my-project": "project_id: null #!"},
        "warning",
        "provider-key-missing",
        "write its value",
    ),
    "no region": (
        "aws",
        {"provider:": "provider: #!", "  region: us-west-2\n": ""},
        "error",
        "provider-key-missing",
        "provider.region",
    ),
    "a zone elsewhere": (
        "gcp",
        {"us-west4-a": "us-west1-a #!"},
        "error",
        "zone-not-in-region",
        "is not in us-west4",
    ),
    "a region as zone": (
        "gcp",
        {"zone: us-west4-a": "zone: us-west4 #!"},
        "error",
        "zone-not-in-region",
        "is not in us-west4",
    ),
    "a zone of Amazon elsewhere": (
        "aws",
        {"us-west-2a, us-west-2-lax-1a": "us-west-2a,us-east-1a #!"},
        "error",
        "zone-not-in-region",
        "us-east-1a is not in us-west-2",
    ),
    "no resource group": (
        "azure",
        {"provider:": "provider: #!", "  resource_group: farm\n": ""},
        "error",
        "provider-key-missing",
        "resource_group",
    ),
    "no subscription": (
        "azure",
        {"provider:": "provider: #!", "  subscription_id: '0'\n": ""},
        "warning",
        "subscription-missing",
        "azure-cli",
    ),
    "half a key pair": (
        "azure",
        {"ssh_user: ubuntu": f"ssh_user: ubuntu\n  ssh_public_key: {__file__} #!"},
        "error",
        "key-pair",
        "both keys or none",
    ),
    "machines that are only stopped": (
        "azure",
        {"provider:": "provider: #!", "  cache_stopped_nodes: false\n": ""},
        "warning",
        "cache-stopped-nodes",
        "billed on",
    ),
    "machines of Amazon that are only stopped": (
        "aws",
        {"provider:": "provider: #!", "  cache_stopped_nodes: false\n": ""},
        "warning",
        "cache-stopped-nodes",
        "billed on",
    ),
    "no module": (
        "external",
        {"provider:": "provider: #!", "  module: farm.provider.Machines\n": ""},
        "error",
        "provider-key-missing",
        "provider.module",
    ),
    "a module without a class": (
        "external",
        {"farm.provider.Machines": "machines #!"},
        "error",
        "provider-module",
        "package.module.Class",
    ),
    "an external provider without a key": (
        "external",
        {"cluster_name: own-farm": "cluster_name: own-farm #!", "cluster_synced_files: []\n": ""},
        "error",
        "external-key-missing",
        "cluster_synced_files",
    ),
    "no head": (
        "local",
        {"provider:": "provider: #!", "  head_ip: 10.0.0.1\n": ""},
        "error",
        "provider-key-missing",
        "provider.head_ip",
    ),
    "node types on one's own machines": (
        "local",
        {
            "setup_commands:": "available_node_types: {a: {resources: {}, node_config: {}}} #!\n"
            "setup_commands:"
        },
        "error",
        "local-node-types",
        "refuses it",
    ),
    "a port of the head": (
        "local",
        {"head_ip: 10.0.0.1": "head_ip: 10.0.0.1:22 #!"},
        "error",
        "address-with-port",
        "without a port",
    ),
    "a port of a worker": (
        "local",
        {"[10.0.0.2, 10.0.0.3]": "\n    - 10.0.0.2\n    - node-3:2222 #!"},
        "error",
        "address-with-port",
        "without a port",
    ),
    "a machine twice": (
        "local",
        {"[10.0.0.2, 10.0.0.3]": "\n    - 10.0.0.2\n    - 10.0.0.1 #!"},
        "error",
        "address-twice",
        "end each other",
    ),
    "fewer workers than addresses": (
        "local",
        {"max_workers: 3": "max_workers: 1 #!"},
        "error",
        "local-max-workers",
        "below the 2 workers",
    ),
    "a coordinator": (
        "local",
        {"head_ip: 10.0.0.1\n  worker_ips: [10.0.0.2, 10.0.0.3]": "coordinator_address: a:1 #!"},
        "warning",
        "local-coordinator",
        "neither login nor encryption",
    ),
    "no vSphere": (
        "vsphere",
        {"provider:": "provider: #!", "  vsphere_config: {namespace: farm}\n": ""},
        "error",
        "provider-key-missing",
        "vsphere_config",
    ),
    # 4.3: ssh and docker
    "nobody to log in as": (
        "local",
        {"auth:": "auth: #!", "  ssh_user: ubuntu": "  ssh_proxy_command: nc %h %p"},
        "error",
        "ssh-user",
        "no default",
    ),
    "a key that is not there": (
        "aws",
        {"ssh_user: ubuntu": "ssh_user: ubuntu\n  ssh_private_key: /no/such.pem #!"},
        "warning",
        "ssh-key-missing",
        "there is no /no/such.pem",
    ),
    "an image without a name": (
        "aws",
        {"docker:\n": "docker: #!\n", "  container_name: ray_docker\n": ""},
        "error",
        "docker-container-name",
        "ray_docker",
    ),
    "a name without an image": (
        "aws",
        {"docker:\n": "docker: #!\n", "  image: rayproject/ray:2.60.0\n": ""},
        "error",
        "docker-image",
        "write an image",
    ),
    "latest": (
        "aws",
        {"rayproject/ray:2.60.0": "rayproject/ray:latest-gpu #!"},
        "warning",
        "image-moves",
        "has the tag latest-gpu",
    ),
    "no tag": (
        "aws",
        {"rayproject/ray:2.60.0": "127.0.0.1:5000/ray #!"},
        "warning",
        "image-moves",
        "has no tag",
    ),
    "latest, of one kind of worker": (
        "aws",
        {"    min_workers: 1\n": "    docker: {worker_image: 'ray:nightly-py311'} #!\n"},
        "warning",
        "image-moves",
        "nightly",
    ),
    "a restart policy beside --rm": (
        "aws",
        {RUN_OPTION: f"{RUN_OPTION}    - --restart=on-failure #!\n"},
        "error",
        "restart-without-rm",
        "--rm=0",
    ),
    "a restart policy in two words": (
        "aws",
        {RUN_OPTION: f"{RUN_OPTION}  worker_run_options:\n    - --restart #!\n    - always\n"},
        "error",
        "restart-without-rm",
        "--rm=0",
    ),
    "shared memory below the cache": (
        "aws",
        {
            RUN_OPTION: f"{RUN_OPTION}    - --shm-size=10gb #!\n",
            SETUP: f"{SETUP}  - gcsfuse --cache-dir /dev/shm --file-cache-max-size-mb 16000 b /m\n",
        },
        "error",
        "shm-below-cache",
        "10.0 GiB of shared memory, and gcsfuse's cache there may take 15.6 GiB",
    ),
    "shared memory of all below the cache of workers": (
        "aws",
        {
            RUN_OPTION: f"{RUN_OPTION}    - --shm-size=10gb #!\n",
            "head_start_ray_commands:": "worker_setup_commands:\n"
            "  - gcsfuse --cache-dir /dev/shm --file-cache-max-size-mb=16000 b /m\n"
            "head_start_ray_commands:",
        },
        "error",
        "shm-below-cache",
        "gcsfuse's cache there may take 15.6 GiB",
    ),
    "a restart policy of all, with --rm=0 on the head": (
        "aws",
        {
            RUN_OPTION: f"{RUN_OPTION}    - --restart=always #!\n"
            "  head_run_options:\n    - --rm=0\n",
        },
        "error",
        "restart-without-rm",
        "--rm=0",
    ),
    "shared memory below the object store": (
        "aws",
        {
            RUN_OPTION: f"{RUN_OPTION}    - --shm-size #!\n    - 512m\n",
            HEAD: f"{HEAD} --object-store-memory 1000000000",
        },
        "error",
        "shm-below-object-store",
        "512 MiB",
    ),
    # 4.3: commands
    "conda activate": (
        "aws",
        {SETUP: f"{SETUP}  - conda activate ray #!\n"},
        "warning",
        "lost-with-its-shell",
        "a shell of its own",
    ),
    "source activate": (
        "aws",
        {SETUP: f"{SETUP}  - sudo true && source activate ray #!\n"},
        "warning",
        "lost-with-its-shell",
        "a shell of its own",
    ),
    "a virtual environment": (
        "local",
        {SETUP: f"{SETUP}  - . ~/venv/bin/activate #!\n"},
        "warning",
        "lost-with-its-shell",
        "a shell of its own",
    ),
    "a variable": (
        "local",
        {SETUP: f"{SETUP}  - export PATH=/opt/bin:$PATH #!\n"},
        "warning",
        "lost-with-its-shell",
        "a shell of its own",
    ),
    "an open dashboard": (
        "local",
        {HOST: f"{HOST.replace('127.0.0.1', ANY)} #!"},
        "warning",
        "dashboard-open",
        "127.0.0.1",
    ),
    "an open dashboard in two words": (
        "gcp",
        {HOST: f"{HOST.replace('=127.0.0.1', f' {ANY}')} #!"},
        "warning",
        "dashboard-open",
        "127.0.0.1",
    ),
    "an open dashboard in quotes": (
        "gcp",
        {HOST: f"{HOST.replace('127.0.0.1', QUOTED)} #!"},
        "warning",
        "dashboard-open",
        "127.0.0.1",
    ),
    "an open dashboard of IPv6": (
        "gcp",
        {HOST: f"{HOST.replace('127.0.0.1', SIX)} #!"},
        "warning",
        "dashboard-open",
        "127.0.0.1",
    ),
    "no command that starts workers": (
        "gcp",
        {
            "cluster_name: gcp-farm": "cluster_name: gcp-farm #!",
            f"worker_start_ray_commands:\n  - ray stop\n  - {WORKER}=$RAY_HEAD_IP:6379\n": "",
        },
        "warning",
        "start-commands-missing",
        "worker_start_ray_commands",
    ),
    "a head without an autoscaler": (
        "gcp",
        {
            "head_start_ray_commands:": "head_start_ray_commands: #!",
            " --autoscaling-config=~/ray_bootstrap_config.yaml": "",
        },
        "warning",
        "no-autoscaling-config",
        "makes no workers",
    ),
    "a command that is gone": (
        "local",
        {SETUP: f"{SETUP}  - ray rsync_up a.yaml x y #!\n"},
        "warning",
        "gone-from-ray",
        "ray rsync-up",
    ),
    "an option that is gone": (
        "local",
        {"--address=$RAY_HEAD_IP:6379": "--redis-address=$RAY_HEAD_IP:6379 #!"},
        "warning",
        "gone-from-ray",
        "--address",
    ),
    "a Ray of the day": (
        "local",
        {SETUP: "  - pip install -U 'ray[default]' torch #!\n"},
        "warning",
        "ray-not-pinned",
        "ray==2.60.0",
    ),
    # 4.6: tokens
    "a mode that Ray lacks": (
        "local",
        {HEAD: HEAD.replace("disabled", "bogus"), HOST: f"{HOST} #!"},
        "error",
        "auth-mode-unknown",
        "asks nobody for a token",
    ),
    "no mode": (
        "local",
        {
            "worker_start_ray_commands:": "worker_start_ray_commands: #!",
            WORKER: WORKER.removeprefix("RAY_AUTH_MODE=disabled "),
        },
        "warning",
        "auth-mode-unset",
        "RAY_AUTH_MODE is not set",
    ),
    "a mode on the host of a container": (
        "gcp",
        {
            RUN_OPTION: "    - -e A=b\n",
            "worker_start_ray_commands:": "worker_start_ray_commands: #!",
            WORKER: WORKER.removeprefix("RAY_AUTH_MODE=disabled "),
            "setup_commands:": "initialization_commands:\n"
            "  - echo export RAY_AUTH_MODE=disabled >> ~/.bashrc\nsetup_commands:",
        },
        "warning",
        "auth-mode-unset",
        "on the host, not in the container",
    ),
    "a token for the head only": (
        "local",
        {
            HEAD: HEAD.replace("disabled", "token"),
            SETUP: f"{SETUP}  - cp token ~/.ray/auth_token\n",
            "=$RAY_HEAD_IP:6379": "=$RAY_HEAD_IP:6379 #!",
        },
        "error",
        "auth-mode-differs",
        "no worker can join",
    ),
    "a mode without a token": (
        "aws",
        {
            RUN_OPTION: RUN_OPTION.replace("disabled", "token"),
            HEAD: HEAD.replace("disabled", "token"),
            HOST: f"{HOST} #!",
            WORKER: WORKER.replace("disabled", "token"),
        },
        "error",
        "auth-token-missing",
        "nothing brings a token",
    ),
    "a token that nothing lays down": (
        "aws",
        {
            HEAD: HEAD.replace("disabled", "token RAY_AUTH_TOKEN_PATH=/run/key/token"),
            HOST: f"{HOST} #!",
            WORKER: WORKER.replace("disabled", "token"),
        },
        "warning",
        "auth-token-missing",
        "nothing in this file lays down /run/key/token",
    ),
    "a token of each node's own": (
        "local",
        {SETUP: f"{SETUP}  - ray get-auth-token --generate > /dev/null #!\n"},
        "error",
        "auth-token-of-each",
        "make it once",
    ),
    "a Ray before tokens": (
        "aws",
        {
            "rayproject/ray:2.60.0": "rayproject/ray:2.45.0-py311 #!",
            HEAD: HEAD.replace("disabled", "token"),
            WORKER: WORKER.replace("disabled", "token"),
            SETUP: f"{SETUP}  - cp token ~/.ray/auth_token\n",
        },
        "error",
        "auth-ray-too-old",
        "Ray 2.45 takes no notice",
    ),
    "a Ray before tokens, by a command": (
        "local",
        {
            SETUP: "  - pip install 'ray[default]==2.9.3' #!\n  - cp token ~/.ray/auth_token\n",
            HEAD: HEAD.replace("disabled", "token"),
            WORKER: WORKER.replace("disabled", "token"),
        },
        "error",
        "auth-ray-too-old",
        "Ray 2.9 takes no notice",
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    provider, edits, level, rule, part = TRAPS[name]
    text = spoiled(provider, edits)
    found = [one for one in lint(tmp_path, text) if one.rule == rule]
    assert [(one.level, one.number) for one in found] == [
        (level, number) for number in marked(text)
    ]
    assert all(part in one.text for one in found)


@pytest.mark.parametrize("provider", GOOD)
def test_a_good_config_has_no_findings(provider: str, tmp_path: Path) -> None:
    assert lint(tmp_path, GOOD[provider]) == []


FINE: dict[str, tuple[str, dict[str, str]]] = {
    "Ray's own maximum of two": (
        "aws",
        {"max_workers: 3\nprov": "prov", "max_workers: 3": "max_workers: 2"},
    ),
    "a head type that Ray fills in": (
        "aws",
        {"head_node_type: leader\n": "", "  leader:": "  ray.head.default:"},
    ),
    "an address of IPv6": ("local", {"head_ip: 10.0.0.1": "head_ip: 'fd00::1'"}),
    "a least number of one's own machines": (
        "local",
        {"max_workers: 3": "max_workers: 1\nmin_workers: 1"},
    ),
    "a type without resources on aws": ("aws", {"    resources: {CPU: 4}\n": ""}),
    "an old form that is empty": (
        "azure",
        {"auth:": "head_node: {}\nworker_nodes: {}\nauth:"},
    ),
    "an environment that is kept": (
        "aws",
        {
            SETUP: f"{SETUP}  - echo 'conda activate ray' >> ~/.bashrc\n"
            "  - conda activate ray && make\n"
        },
    ),
    "a restart policy and --rm=0": (
        "aws",
        {RUN_OPTION: f"{RUN_OPTION}    - --rm=0\n    - --restart=on-failure\n"},
    ),
    "no restart policy, said": ("aws", {RUN_OPTION: f"{RUN_OPTION}    - --restart=no\n"}),
    "a digest": ("aws", {"ray:2.60.0": f"ray@sha256:{'0' * 64}"}),
    "a mode in the shell's own file": (
        "local",
        {
            HEAD: HEAD.removeprefix("RAY_AUTH_MODE=disabled "),
            WORKER: WORKER.removeprefix("RAY_AUTH_MODE=disabled "),
            SETUP: f"{SETUP}  - echo 'export RAY_AUTH_MODE=disabled' >> ~/.bashrc\n",
        },
    ),
    "a token by a volume": (
        "aws",
        {
            RUN_OPTION: f"{RUN_OPTION}    - -v /var/keys:/run/key:ro\n",
            HEAD: HEAD.replace("disabled", "token RAY_AUTH_TOKEN_PATH=/run/key/token"),
            WORKER: WORKER.replace("disabled", "token RAY_AUTH_TOKEN_PATH=/run/key/token"),
        },
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_no_false_alarm(name: str, tmp_path: Path) -> None:
    provider, edits = FINE[name]
    assert [one.line for one in lint(tmp_path, spoiled(provider, edits))] == []


def test_a_wrong_key_does_not_hide_what_it_means(tmp_path: Path) -> None:
    text = spoiled("aws", {"aws-farm": "my farm", "max_workers: 3\nprov": "nonsense: 1\nprov"})
    assert {"unknown-key", "cluster-name"} <= {one.rule for one in lint(tmp_path, text)}


@pytest.mark.parametrize(
    "local", ['"~nosuchuser/file"', f'"/{"x" * 300}"', r'"a\0b"', '"~/\u2028"']
)
def test_a_path_that_cannot_be_is_a_file_that_is_not_there(local: str, tmp_path: Path) -> None:
    mount = f"file_mounts:\n  /remote: {local}\nsetup_commands:"
    text = spoiled("aws", {"setup_commands:": mount})
    assert [one.rule for one in lint(tmp_path, text)] == ["file-missing"]
    # The same rule reads what our own templates render.
    assert [one.partition(":")[0] for one in check_config(text)] == ["file_mounts./remote"]


def test_a_private_key_that_others_may_read(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.touch(0o644)
    edits = {"ssh_user: ubuntu": f"ssh_user: ubuntu\n  ssh_private_key: {key}"}
    assert [one.rule for one in lint(tmp_path, spoiled("aws", edits))] == ["ssh-key-readable"]
    key.chmod(0o600)
    assert lint(tmp_path, spoiled("aws", edits)) == []

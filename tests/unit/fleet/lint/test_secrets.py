"""Secrets in commands and values are found, named by kind and line, and never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.fleet.lint.examples import lint, marked, spoiled

SETUP = "  - pip install 'ray[default]==2.60.0'\n"
WORD = "S3cr3tS3cr3tS3cr3t"  # what must never be seen again

# In pieces, so that no scanner of secrets takes this file for a find.
HELD = {
    "docker login -p": f"docker login -u me -p {WORD} registry.example.com",
    "docker login, joined": f"docker login -u me -p{WORD}",
    "docker login --password": f"docker login --username me --password {WORD}",
    "podman login": f"sudo podman login --password={WORD} registry.example.com",
    "--password=": f"fetch --password={WORD} there",
    "--token": f"fetch --token {WORD}",
    "--api-key": f"fetch --api-key '{WORD}'",
    "sk-": f"export KEY=sk-proj-{WORD} && run",
    "ghp_": f"git clone https://ghp_{WORD}{WORD}@github.com/a/b",
    "github_pat_": f"echo github_pat_{WORD}",
    "glpat-": f"echo glpat-{WORD}",
    "hf_": f"hf auth login hf_{WORD}",
    "an id of Amazon": "echo AKIA" + "ABCDEFGH12345678",
    "a secret of Amazon": f"AWS_SECRET_ACCESS_KEY={WORD} aws s3 ls",
    "a variable": f"export DB_PASSWORD='{WORD}' && run",
    "a token's variable": f"RAY_AUTH_TOKEN={WORD} ray status",
    "Bearer": f"curl -H 'Authorization: Bearer {WORD}' https://example.com",
    "user and password": f"pip install --index-url https://me:{WORD}@pypi.example.com/simple x",
    "a database": f"postgresql://admin:{WORD}@db.example.com/jobs",
    "AIza": f"echo AIza{WORD}{WORD}",
    "a private key": f"echo '-----BEGIN OPENSSH PRIVATE KEY-----{WORD}' > key",
    "xoxb": f"echo xoxb-{WORD}",
    "a signed token": f"echo eyJ{WORD}.eyJ{WORD}.x",
}

HARMLESS = {
    "a variable": "docker login -u me -p $REGISTRY_PASSWORD",
    "a variable in quotes": 'docker login --password "${PASSWORD}"',
    "stdin": "get | docker login -u me --password-stdin registry.example.com",
    "a command": "RAY_AUTH_TOKEN=$(cat /run/token) ray status",
    "a name of a secret": "gcloud secrets versions access latest --secret=RAY_CLUSTER_PUBLIC_KEY",
    "a path": "RAY_AUTH_TOKEN_PATH=/run/token GOOGLE_APPLICATION_CREDENTIALS=/run/key.json run",
    "a file of a token": "run --token-file=/run/token --password=/run/password",
    "a port": "curl http://localhost:8080/a@b",
    "a mode": "export RAY_AUTH_MODE=disabled HF_TOKEN=$HF_TOKEN && run",
    "an option": "serve --max-tokens=100000 --tokenizer-mode=auto-detect",
    "git over ssh": "git clone ssh://git@github.com/a/b && git clone git@github.com:a/b",
    "an image": "docker pull registry:5000/ray@sha256:" + "0" * 64,
    "a placeholder": "fetch --token <your-token> --password=***",
}


@pytest.mark.parametrize("name", HELD)
def test_a_secret_is_found_and_not_shown(name: str, tmp_path: Path) -> None:
    text = spoiled("local", {SETUP: f"{SETUP}  - {json.dumps(HELD[name])} #!\n"})
    found = [one for one in lint(tmp_path, text) if one.rule == "secret"]
    assert [(one.level, one.number) for one in found] == [("error", n) for n in marked(text)]
    shown = " ".join(str(one.record) for one in lint(tmp_path, text))
    assert WORD not in shown
    assert "ABCDEFGH1234" not in shown


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_like_one_is_left(name: str, tmp_path: Path) -> None:
    text = spoiled("local", {SETUP: f"{SETUP}  - {json.dumps(HARMLESS[name])}\n"})
    assert [one.line for one in lint(tmp_path, text) if one.rule == "secret"] == []


@pytest.mark.parametrize(
    "edits",
    [
        {"10.0.0.1": f"'https://me:{WORD}@host'"},
        {"home-farm": f"sk-{WORD}"},
        {"home-farm": f"'sk-{WORD} with blanks'"},
        {"ssh_user: ubuntu": f"sk-{WORD}: 1"},
        {"ssh_user: ubuntu": f"ssh_user: hf_{WORD}\n  ssh_private_key: hf_{WORD}"},
        {"type: local": f"type: sk-{WORD}"},
        {"max_workers: 3": f"max_workers: sk-{WORD}"},
        {"max_workers: 3": f"max_workers: !!int sk-{WORD}"},
        {"setup_commands:": f"setup_commands: hf_{WORD}\nx:"},
        {"setup_commands:": f"file_mounts: {{/a: sk-{WORD}}}\nsetup_commands:"},
        {"setup_commands:": f"docker: {{image: 'a:latest-sk-{WORD}'}}\nsetup_commands:"},
        {"RAY_AUTH_MODE=disabled ray start --head": f"RAY_AUTH_MODE=sk-{WORD} ray start --head"},
    ],
)
def test_no_rule_shows_a_secret(edits: dict[str, str], tmp_path: Path) -> None:
    found = lint(tmp_path, spoiled("local", edits))
    assert found
    assert WORD not in " ".join(str(one.record) for one in found)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("access_key_secret", WORD),
        ("aws_credentials", f"{{aws_secret_access_key: {WORD}}}"),
        ("gcp_credentials", f"{{type: credentials_token, credentials: {WORD}}}"),
    ],
)
def test_keys_whose_value_is_secret(key: str, value: str, tmp_path: Path) -> None:
    text = spoiled("aws", {"region: us": f"{key}: {value} #!\n  region: us"})
    found = [one for one in lint(tmp_path, text) if one.rule == "secret"]
    assert [one.number for one in found] == marked(text)
    assert WORD not in str(found)

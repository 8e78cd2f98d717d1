#!/usr/bin/env bash
# Renew the locks: requirements.lock (everything), docker/requirements.lock (what the cluster
# image installs) and docker/uv.lock (what installs it), all at the same versions. None of them
# names an index or a folder of this machine.
# Arguments go to uv: `scripts/lock.sh --upgrade`, `scripts/lock.sh --upgrade-package ray`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

compile() {
    .venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
        --no-emit-index-url --custom-compile-command "make lock" "$@"
}

compile "$@" --extra dev --output-file requirements.lock pyproject.toml
compile --constraint requirements.lock --output-file docker/requirements.lock docker/requirements.in
compile --constraint requirements.lock --output-file docker/uv.lock docker/uv.in

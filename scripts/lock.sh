#!/usr/bin/env bash
# Renew the locks: requirements.lock (everything), docker/requirements.lock (what the cluster
# image installs), docker/vllm.lock (what the vLLM image installs over that) and docker/uv.lock
# (what installs both), all at the same versions. None of them names an index or a folder of this
# machine.
# Arguments go to uv: `scripts/lock.sh --upgrade`, `scripts/lock.sh --upgrade-package ray`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

compile() {
    .venv/bin/uv pip compile --quiet --generate-hashes --python-version 3.11 \
        --no-emit-index-url --custom-compile-command "make lock" "$@"
}

compile "$@" --universal --extra dev --output-file requirements.lock pyproject.toml
for name in requirements uv; do
    compile --universal --constraint requirements.lock \
        --output-file "docker/$name.lock" "docker/$name.in"
done
# Wheels for Debian 12 on x86-64 only: libtpu has none for anything else.
compile --only-binary :all: --python-platform x86_64-manylinux_2_36 --constraint docker/requirements.lock \
    --output-file docker/vllm.lock docker/vllm.in

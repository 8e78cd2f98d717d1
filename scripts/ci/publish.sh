#!/usr/bin/env bash
# Build the image, publish it to every region, pin it and regenerate the configs. What that
# changes in this checkout goes into $CHANGES (a folder): changes.patch, and image.json.
#
#   INVOKE_FLEET  the fleet file    IMAGE  an image of it (default: cluster)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
PATH=$PWD/.venv/bin:$PATH
: "${CHANGES:=release}"
mkdir -p "$CHANGES"

invoke fleet.lint
invoke registry.login --check --json >"$CHANGES/logins.json"
invoke cluster-docker --image "${IMAGE:-cluster}" --json >"$CHANGES/image.json"
invoke update-configs
invoke update-configs --check

# New files as well, and nothing outside infra: the cloud's login lies in this checkout, too.
git add --intent-to-add infra
git diff --binary -- infra >"$CHANGES/changes.patch"

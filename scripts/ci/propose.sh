#!/usr/bin/env bash
# Open a pull request with what publish.sh left in $CHANGES, or renew the one that is open.
# Nothing to change is no error. Needs git's remote "origin" and gh with GH_TOKEN.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
: "${CHANGES:=release}" "${IMAGE:=cluster}"
branch=actions/release-$IMAGE

if [ ! -s "$CHANGES/changes.patch" ]; then
    echo "propose: $IMAGE is pinned already; nothing to propose" >&2
    exit 0
fi
# Only what a release may change, whatever the patch says.
git apply --index --include='infra/*' "$CHANGES/changes.patch"
git switch --quiet --create "$branch"
git -c user.name='github-actions[bot]' \
    -c user.email='41898282+github-actions[bot]@users.noreply.github.com' \
    commit --quiet --message "Pin the new $IMAGE image"

gh auth setup-git
git push --quiet --force origin "$branch"
if [ -z "$(gh pr list --head "$branch" --base main --state open --json number --jq '.[].number')" ]; then
    gh pr create --head "$branch" --base main --title "Pin the new $IMAGE image" --body \
        "The image is in every region. Merging this starts the staged restart of the clusters."
fi
# A push with this token starts no workflow by itself.
gh workflow run test.yml --ref "$branch"

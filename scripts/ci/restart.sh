#!/usr/bin/env bash
# The staged restart of the clusters that do not run what is pinned. Its events, a line of JSON
# each, and its report go into $EVENTS (a folder). Ends with the exit code of the restart; after a
# good one the regions' cleanup policies follow, which have to know what every head runs.
#
#   INVOKE_FLEET  the fleet file    CLUSTERS  names or globs, with blanks between (default: all)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
PATH=$PWD/.venv/bin:$PATH
: "${EVENTS:=restart}"
mkdir -p "$EVENTS"

chosen=(--all)
if [ -n "${CLUSTERS-}" ]; then
    chosen=()
    read -ra names <<<"$CLUSTERS" # no globbing here: the fleet's names are meant
    for name in "${names[@]}"; do chosen+=(--cluster "$name"); done
fi

invoke update-configs --check
code=0
invoke restart "${chosen[@]}" --only-outdated --yes --json | tee "$EVENTS/events.jsonl" || code=$?

# Of this rollout: a folder of state that stays may hold others, and there may be nothing to do.
rollout=$(tail -n 1 "$EVENTS/events.jsonl" | sed -n 's/.*"rollout": *"\([^"]*\)".*/\1/p')
if [ -n "$rollout" ]; then
    invoke rollouts.show "$rollout" --html "$EVENTS/report.html" | tee "$EVENTS/report.txt" || true
    if [ -n "${GITHUB_STEP_SUMMARY-}" ]; then
        { echo '```' && cat "$EVENTS/report.txt" && echo '```'; } >>"$GITHUB_STEP_SUMMARY"
    fi
fi
[ "$code" -eq 0 ] || exit "$code"
invoke registry.cleanup --json >"$EVENTS/policies.json"

#!/usr/bin/env bash
# A whole release on this machine, from nothing: set up, start the sandbox, build and publish the
# image, restart four clusters onto it, run a job on one, show them all and their logs. Every step
# can be run again; the first that fails ends the demo with its exit code.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1

# The demo is of the sandbox, whatever fleet the operator has configured.
export INVOKE_FLEET=infra/sandbox.yaml
cluster=us-east5
job="python source_statistics.py --package ray --limit 100"
times=()

main() {
    local dirty=()
    phase "set up" scripts/bootstrap.sh
    if [ -n "$(git status --porcelain)" ]; then
        echo "demo: this checkout has uncommitted changes: --allow-dirty, and the tag will say so" >&2
        dirty=(--allow-dirty)
    fi
    phase "sandbox" run sandbox.up
    phase "release" run release --yes "${dirty[@]}"
    phase "job" run jobs.submit --cluster "$cluster" --working-dir scripts/jobs "$job"
    phase "status" run status
    phase "logs" run tail-logs --no-follow --tail 3
    farewell
}

run() {
    echo "\$ invoke $(printf '%s ' "$@" | sed 's/ $//')" >&2
    .venv/bin/invoke "$@"
}

# phase NAME COMMAND...: run it, keep its time, and end with its exit code if it fails.
phase() {
    local name=$1 start=$EPOCHREALTIME code=0
    shift
    printf '\n== %s\n' "$name" >&2
    "$@" || code=$?
    times+=("$(awk -v a="$start" -v b="$EPOCHREALTIME" -v n="$name" 'BEGIN {printf "%-10s %7.1f s", n, b - a}')")
    if [ "$code" -ne 0 ]; then
        printf '\ndemo: "%s" failed with exit code %d; mend it, then run again: make demo\n' "$name" "$code" >&2
        exit "$code"
    fi
}

farewell() {
    printf '\n== times\n'
    printf '%s\n' "${times[@]}"
    cat <<'END'

Go on (first: . .venv/bin/activate)
  invoke status                                what every cluster runs
  invoke tail-logs                             the autoscaler logs of all heads, until Ctrl-C
  invoke sandbox.preempt --cluster us-east5    kill a worker; Ray's autoscaler replaces it
  invoke release --yes                         a second release: nothing changed, little to do
  invoke --list                                everything else

Stop
  invoke sandbox.down                          removes all of it but the Docker engine
END
}

main

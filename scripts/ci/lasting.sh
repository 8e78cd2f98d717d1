#!/usr/bin/env bash
# Whether a restart that is cut off here can be resumed: jobs are saved to, and taken up again
# from, the folder of state. Ends with 1 where that folder goes with the run, before anything of a
# cluster is touched.
#
#   RESTART_RUNNER      the label of a runner of one's own
#   INVOKE_STATE        the folder of state, made once on that runner; it stays
#   RUNNER_ENVIRONMENT  what GitHub says of the runner: github-hosted or self-hosted
set -euo pipefail

refuse() {
    echo "error: a restart would lose its journal and the saved jobs with this run: $1" >&2
    echo "  next: $2" >&2
    exit 1
}

set_it="set this variable of the repository (not of the environment), then run the workflow again"
folder="make it once on the runner (mkdir -m 700 -p FOLDER), and set RESTART_STATE to it"
[ -n "${RESTART_RUNNER-}" ] ||
    refuse "RESTART_RUNNER names no runner of yours" "$set_it"
[ "${RUNNER_ENVIRONMENT-}" != github-hosted ] ||
    refuse "$RESTART_RUNNER is a runner that GitHub deletes afterwards" \
        "set RESTART_RUNNER to the label of a runner of your own"
[ -n "${INVOKE_STATE-}" ] ||
    refuse "RESTART_STATE names no folder that stays" "$folder"
[[ $INVOKE_STATE == /* ]] ||
    refuse "$INVOKE_STATE is no absolute path: the checkout is cleaned before each run" "$folder"
[ -d "$INVOKE_STATE" ] && [ -w "$INVOKE_STATE" ] ||
    refuse "$INVOKE_STATE is not there, or cannot be written" "$folder"
state=$(realpath -- "$INVOKE_STATE")
for gone in "${GITHUB_WORKSPACE:-$PWD}" "${RUNNER_TEMP-}"; do
    [ -n "$gone" ] || continue
    gone=$(realpath -m -- "$gone")
    [[ $state/ != "$gone"/* ]] ||
        refuse "$INVOKE_STATE is in $gone, which each run cleans" "$folder"
done
case $(stat --file-system --format=%T -- "$state") in
tmpfs | ramfs) refuse "$INVOKE_STATE is in memory" "$folder" ;;
esac

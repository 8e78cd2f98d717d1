# Above this line are the settings of one cluster (rayfleet/worker/startup.py).
#
# Runs as root on every machine of a slice at each boot: installs itself as a service that joins
# the cluster, and joins it again after a new head, a reboot or another image. What it does last
# is a guest attribute, which `invoke workers.list` shows.
set -uo pipefail

readonly FOLDER="${RAYFLEET_FOLDER:-/var/lib/rayfleet}"
readonly SERVER=http://metadata.google.internal/computeMetadata/v1/instance
readonly FIRST_PAUSE=5 LONGEST_PAUSE=300 # seconds
readonly LOOK=15                         # seconds between two looks at the container
readonly HEAD_EVERY=20                   # looks; Ray itself leaves a head that is gone
# The service has a short PATH, and gcloud is a snap on TPU VMs.
export PATH="$PATH:/usr/local/bin:/snap/bin" HOME="${HOME:-$(getent passwd 0 | cut -d: -f6)}" USER="${USER:-root}"

pause=$FIRST_PAUSE told=""

metadata() {
    curl -sf --max-time 10 -H 'Metadata-Flavor: Google' "$SERVER/attributes/$1"
}

# tell STATE [DETAIL…]
tell() {
    [ "$*" = "$told" ] && return
    told="$*"
    printf '%s\n' "$*"
    curl -sf --max-time 10 -H 'Metadata-Flavor: Google' -X PUT --data "$1 $IMAGE ${*:2}" \
        "$SERVER/guest-attributes/rayfleet/state" > /dev/null || true
}

back_off() {
    sleep "$pause"
    pause=$((pause * 2 > LONGEST_PAUSE ? LONGEST_PAUSE : pause * 2))
}

# Prints "ADDRESS ID" of the newest running head. The ID tells a new head at an old address.
find_head() {
    timeout 60 gcloud compute instances list --quiet --project="$PROJECT" --zones="$ZONE" \
        --filter="labels.ray-cluster-name=$CLUSTER AND labels.ray-node-type=head AND status=RUNNING" \
        --sort-by=~creationTimestamp --limit=1 --format='value(networkInterfaces[0].networkIP,id)'
}

# Whether the operator wants another script than this one, and with it another image.
outdated() {
    local wanted
    wanted=$(metadata startup-script) || return 1
    [ -n "$wanted" ] && [ "$wanted" != "$(cat "$FOLDER/worker.sh")" ] || return 1
    printf '%s\n' "$wanted" > "$FOLDER/worker.new" && bash -n "$FOLDER/worker.new"
}

renew() {
    outdated || return 0
    mv "$FOLDER/worker.new" "$FOLDER/worker.sh"
    exec bash "$FOLDER/worker.sh" supervise
}

# The host as Ray's launcher prepares it, secrets and the token included, which may have changed.
prepare() {
    local command
    for command in "${INITIALIZATION[@]}"; do
        bash -c "$command" || return 1
    done
    # The commands mean who runs them, who is root here; operators enter the container, too.
    if id "$OPERATOR" > /dev/null 2>&1; then
        usermod -aG docker "$OPERATOR" || true
    fi
}

# What the container runs; every command has a shell of its own, as with Ray's launcher.
write_entry() {
    local command
    {
        for command in "${SETUP[@]}"; do
            printf 'bash --login -c %q || exit\n' "$command"
        done
    } > "$FOLDER/entry.new" && chmod 0644 "$FOLDER/entry.new" && mv "$FOLDER/entry.new" "$FOLDER/entry.sh"
}

join() {
    docker rm --force "$CONTAINER" > /dev/null 2>&1
    # A container that was killed leaves it, and no TPU process would start.
    rm -f /tmp/libtpu_lockfile
    # No restart policy: a container would come back without this script and its new head.
    docker run --detach --name "$CONTAINER" --net=host --init "${OPTIONS[@]}" \
        --env RAY_HEAD_IP="$1" --env RAY_OVERRIDE_RESOURCES="$RESOURCES" \
        --volume "$FOLDER/entry.sh:/run/rayfleet-entry.sh:ro" \
        "$IMAGE" bash /run/rayfleet-entry.sh > /dev/null
}

running() {
    [ "$(timeout 20 docker inspect --format '{{.State.Running}}' "$CONTAINER" 2> /dev/null)" = true ]
}

# Returns when the container has ended, or ought to.
stay() {
    local looks=0 now
    while sleep "$LOOK" && running; do
        if timeout 20 docker top "$CONTAINER" 2> /dev/null | grep -q raylet; then
            pause=$FIRST_PAUSE
            tell joined
        fi
        outdated && return
        looks=$((looks + 1))
        [ $((looks % HEAD_EVERY)) -eq 0 ] || continue
        now=$(find_head) && [ -n "$now" ] && [ "$now" != "$1" ] && return
    done
}

# Why the container ended.
explain() {
    local log
    log=$(timeout 20 docker logs --tail 100 "$CONTAINER" 2>&1)
    printf '%s\n' "$log" | tail -n 20
    # Ray compares its version and Python's with those of the head before it joins.
    if grep -q 'Version mismatch' <<< "$log"; then
        tell version-mismatch "$(grep -oE '(Ray|Python): [^ ]+' <<< "$log" | head -n 4 | paste -sd ' ')"
    else
        tell lost-head
    fi
}

attempt() {
    local head
    head=$(find_head)
    if [ -z "$head" ]; then
        tell waiting-for-head
        return
    fi
    if ! prepare; then
        tell host-not-ready
        return
    fi
    if ! timeout 1800 docker pull --quiet "$IMAGE"; then
        tell no-image
        return
    fi
    if ! write_entry || ! join "${head%%[[:space:]]*}"; then
        tell no-container
        return
    fi
    stay "$head"
    if running; then
        return
    fi
    explain
}

supervise() {
    while :; do
        renew
        attempt
        back_off
    done
}

install_service() {
    mkdir -p "$FOLDER"
    cp "${BASH_SOURCE[0]}" "$FOLDER/worker.sh"
    systemctl stop rayfleet-worker.service 2> /dev/null
    systemd-run --collect --unit=rayfleet-worker --property=Restart=always \
        --property=RestartSec=10 bash "$FOLDER/worker.sh" supervise
}

if [ "${1:-}" = supervise ]; then supervise; else install_service; fi

#!/usr/bin/env bash
# Make this checkout ready: a .venv with exactly what requirements.lock names, and the programs
# that Ray's cluster launcher runs (ssh, rsync). Quiet and quick when there is nothing to do;
# after anything went wrong, a kill included, run it again.
#
#   scripts/bootstrap.sh            what the tasks need
#   scripts/bootstrap.sh --tests    and what the tests need (sshd, docker-registry, podman, ...);
#                                   Chromium too, where that takes no more than asking Debian
#
# PYTHON names the interpreter to use (3.11 or later). pip's configuration (index, extra index,
# certificate, trusted hosts) and the proxy variables are honoured.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
stamp=$venv/.rayfleet-ready
work=$root/.rayfleet/bootstrap

main() {
    local tests=false
    case ${1-} in
        "") ;;
        --tests) tests=true ;;
        *) die "unknown option $1" "scripts/bootstrap.sh [--tests]" ;;
    esac
    mkdir -p "$work"
    one_at_a_time
    if ! ready; then
        build_venv
    fi
    # Invoke turns the writing of bytecode off, so nobody else would ever compile these.
    "$venv/bin/python" -m compileall -q "$root/rayfleet" "$root/tasks.py"
    need_programs ssh:openssh-client rsync:rsync git:git
    if $tests; then
        need_programs sshd:openssh-server docker-registry:docker-registry \
            podman:podman runc:runc skopeo:skopeo
        want_browser
    fi
}

say() { echo "bootstrap: $*" >&2; }

die() {
    echo "error: $1" >&2
    echo "  next: $2" >&2
    exit 1
}

# Two `make` at once in one checkout must not build the same .venv.
one_at_a_time() {
    command -v flock >/dev/null || return 0
    exec 9>"$work/lock"
    flock -n 9 && return 0
    say "waiting for another bootstrap of this checkout"
    flock -w 900 9 || die "another bootstrap of this checkout did not end in 15 minutes" "make setup"
}

# The stamp is written last: where the .venv lies and its Python, then the hash of its contents.
ready() { in_place && [ "$(sed -n 2p "$stamp")" = "$(contents)" ]; }

in_place() {
    [ -f "$stamp" ] && [ "$(sed -n 1p "$stamp")" = "$(place)" ] || return 1
    [ -z "${PYTHON-}" ] || [ "$(version_of "$PYTHON")" = "$(version_of "$venv/bin/python")" ]
}

place() { echo "$root $(version_of "$venv/bin/python")"; }

contents() { cat "$root/requirements.lock" "$root/pyproject.toml" | git hash-object --stdin; }

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true; }

build_venv() {
    # Without its stamp a .venv may be half of one: a run died in it, or it is not ours.
    in_place || fresh_venv
    rm -f "$stamp"
    read_pip_configuration
    install_uv
    install_packages
    printf '%s\n%s\n' "$(place)" "$(contents)" >"$work/stamp"
    mv "$work/stamp" "$stamp"
    say "ready: $("$venv/bin/python" -V), $("$venv/bin/invoke" --version)"
}

fresh_venv() {
    local python
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_venv_module "$python"
    say "creating .venv with $("$python" -V) ($python)"
    rm -f "$stamp"
    "$python" -m venv --clear "$venv" \
        || die "$python cannot make a virtual environment" "PYTHON=/path/to/another/python3 make setup"
}

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" ${PYTHON:-python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    die "no Python of 3.11 or later (tried: ${PYTHON:-python3 python3.13 python3.12 python3.11})" \
        "install one, then: PYTHON=/path/to/python3 make setup"
}

install_venv_module() {
    local package
    package=python$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    case $1 in
        /usr/bin/*) apt_install "$package" ;;
        *) die "$1 lacks the modules venv and ensurepip" "PYTHON=/path/to/another/python3 make setup" ;;
    esac
}

# What pip is told of indexes and certificates holds for uv too. Folders (file://) are left out:
# every package of the lock is on an index, and uv fails on a folder that is not there.
read_pip_configuration() {
    local configuration certificate bundle
    configuration=$("$venv/bin/python" -m pip config list 2>/dev/null || true)
    certificate=$(pip_option cert)
    for bundle in "$certificate" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
        if [ -z "${SSL_CERT_FILE-}" ] && [ -f "$bundle" ]; then
            export SSL_CERT_FILE=$bundle
        fi
    done
    if [ -z "$certificate" ] && [ -n "${SSL_CERT_FILE-}" ]; then
        export PIP_CERT=$SSL_CERT_FILE
    fi
    take_over UV_DEFAULT_INDEX "$(pip_option index-url | grep -E '^https?://' || true)"
    take_over UV_INDEX "$(pip_option extra-index-url | grep -E '^https?://' || true)"
    take_over UV_INSECURE_HOST "$(pip_option trusted-host)"
    # pip looks at all indexes alike; the hashes of the lock make that safe.
    export UV_INDEX_STRATEGY=${UV_INDEX_STRATEGY:-unsafe-best-match}
    export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-120}
}

# The values of one pip option, one a line: the environment wins, then install, then global.
pip_option() {
    local section value
    for section in :env: install global; do
        value=$(sed -n "s/^$section\\.$1='\\(.*\\)'\$/\\1/p" <<<"$configuration")
        if [ -n "$value" ]; then
            sed 's/\\n/ /g' <<<"$value" | tr -s ' ' '\n' | sed '/^$/d'
            return
        fi
    done
}

take_over() {
    if [ -n "$2" ] && [ -z "${!1-}" ]; then
        export "$1=$(paste -sd ' ' <<<"$2")"
    fi
}

install_uv() {
    say "installing uv"
    awk '/^[a-z]/ {mine = /^uv==/} mine && !/^ *#/' "$root/requirements.lock" >"$work/uv.txt"
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-input --no-deps \
        --require-hashes --only-binary :all: -r "$work/uv.txt" \
        || die "pip could not install uv" "mend the network or pip's configuration, then: make setup"
}

install_packages() {
    say "installing the $(grep -c '^[a-z].*==' "$root/requirements.lock") packages of requirements.lock"
    uv_pip sync --require-hashes --compile-bytecode "$root/requirements.lock"
    # setuptools is in the lock; an isolated build would fetch another one, without a hash.
    uv_pip install --no-deps --no-build-isolation --editable "$root"
}

uv_pip() {
    local command=$1 quiet=()
    shift
    [ -t 2 ] || quiet=(--quiet)
    "$venv/bin/uv" pip "$command" "${quiet[@]}" --python "$venv/bin/python" "$@" \
        || die "uv could not install the packages" "mend the network or the disk, then: make setup"
}

# Each argument is PROGRAM:DEBIAN-PACKAGE.
need_programs() {
    local pair packages=()
    for pair in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || packages+=("${pair##*:}")
    done
    if [ ${#packages[@]} -gt 0 ]; then
        apt_install "${packages[@]}"
    fi
}

# One test needs a browser; without one it is skipped and says why.
want_browser() {
    command -v chromium google-chrome >/dev/null && return
    grep -qx 'ID=debian' /etc/os-release 2>/dev/null && [ "$(id -u)" -eq 0 ] || return 0
    (apt_install chromium) || say "no Chromium: the test of the dashboard's page will be skipped"
}

apt_install() {
    local command="apt-get install -y --no-install-recommends $*"
    if ! command -v apt-get >/dev/null; then
        die "missing on this machine: $*" "install these (Debian's names) with your package manager, then run again"
    elif [ "$(id -u)" -ne 0 ]; then
        die "missing on this machine: $*" "sudo $command"
    fi
    say "installing $*"
    keep_services_off "$@"
    export DEBIAN_FRONTEND=noninteractive
    {
        dpkg --configure -a # an installation that was killed blocks every later one
        apt-get -o Acquire::Retries=3 update || true # one dead list must not stop the others
        # shellcheck disable=SC2086
        apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 ${command#apt-get}
    } >"$work/apt.log" 2>&1 </dev/null || {
        tail -n 15 "$work/apt.log" >&2
        die "apt-get could not install $*" "$command"
    }
}

# Debian starts a daemon as soon as it is installed. We want the programs only: each daemon is
# told by its own means not to run, unless it was there before.
keep_services_off() {
    case " $* " in *" openssh-server "*) mkdir -p /etc/ssh && : >/etc/ssh/sshd_not_to_be_run ;; esac
    case " $* " in *" docker-registry "*) mask docker-registry.service ;; esac
    case " $* " in *" podman "*)
        # A timer that updates containers is none of a test's business either.
        mask podman.service podman.socket podman-restart.service \
            podman-auto-update.service podman-auto-update.timer
        ;;
    esac
}

# What is in the folder already is somebody's own choice.
mask() {
    local unit
    mkdir -p /etc/systemd/system
    for unit in "$@"; do
        [ -e "/etc/systemd/system/$unit" ] || ln -sfn /dev/null "/etc/systemd/system/$unit"
    done
}

main "$@"

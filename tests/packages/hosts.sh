# Included by the scripts in this folder: hosts with systemd in containers, which are removed at the end. The first host
# compiles the kernels, which takes minutes, and the others get a copy.
#   KERNELS=FILE   an archive of compiled kernels for the first host as well
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "FAILED: $*"; exit 1; }
docker info >/dev/null 2>&1 || { say "SKIPPED: no Docker engine responds"; exit 0; }

kernels=/opt/cpsched/lib/python3.11/site-packages/cpsched/__pycache__/kernels
compiled=${KERNELS:-}
containers=()
folder=$(mktemp -d)
cleanup() {
    rm -rf "$folder"
    if [ "${#containers[@]}" -gt 0 ]; then docker rm --force --volumes "${containers[@]}" >/dev/null; fi
}
trap cleanup EXIT

start_host() { # NAME SUITE: an empty host, with build/packages in /packages
    local name=$1 suite=$2
    deploy/slurm/base-image "$suite"
    docker build --quiet --tag "cpsched/host:$suite" --build-arg "SUITE=$suite" --file tests/packages/Dockerfile . >/dev/null
    docker run --detach --name "$name" --hostname "$name" --network none --tmpfs /run --tmpfs /tmp \
        --cap-add SYS_ADMIN --cap-add NET_ADMIN --cap-add SYS_PTRACE --cap-add SYS_NICE --cap-add DAC_READ_SEARCH \
        --security-opt seccomp:unconfined --security-opt apparmor:unconfined \
        --volume "$PWD/build/packages:/packages:ro" "cpsched/host:$suite" >/dev/null
    containers+=("$name")
    for _ in $(seq 120); do
        case $(docker exec "$name" systemctl is-system-running 2>/dev/null) in running | degraded) break ;; esac
        sleep 0.5
    done
    docker exec "$name" systemctl is-system-running 2>/dev/null | grep -q -x -E 'running|degraded' || die "$name: systemd does not start"
    give_kernels "$name" /
}

give_kernels() { # HOST ROOT
    if [ -n "$compiled" ]; then
        on "$1" sh -ec "mkdir -p $2$kernels && tar -C $2$kernels --no-same-owner -x" <"$compiled"
    fi
}

keep_kernels() { # HOST: for the hosts that start after this one
    if [ -z "$compiled" ]; then
        on "$1" tar -C "$kernels" -c . >"$folder/kernels.tar"
        compiled=$folder/kernels.tar
    fi
}

on() { docker exec --interactive "$@"; }

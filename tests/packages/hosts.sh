# Included by the scripts in this folder: hosts with systemd in containers, which are removed at the end.
#   KERNELS=DIR   give the hosts these compiled kernels, so that they need not compile them, which takes minutes each
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "FAILED: $*"; exit 1; }
docker info >/dev/null 2>&1 || { say "SKIPPED: no Docker engine responds"; exit 0; }

kernels=/opt/cpsched/lib/python3.11/site-packages/cpsched/__pycache__/kernels
containers=()
cleanup() { if [ "${#containers[@]}" -gt 0 ]; then docker rm --force --volumes "${containers[@]}" >/dev/null; fi; }
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
    if [ -n "${KERNELS:-}" ]; then
        tar -C "$KERNELS" -c . | docker exec --interactive "$name" sh -ec "mkdir -p $kernels && tar -C $kernels --no-same-owner -x"
    fi
}

on() { docker exec --interactive "$@"; }

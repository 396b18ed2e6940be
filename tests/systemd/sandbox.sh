#!/bin/bash
# A real systemd as PID 1 of its own namespaces (PID, mount, network, UTS, IPC, cgroup), over a
# throw-away overlay of this machine's root: nothing that happens inside reaches the machine.
#
# Usage: sandbox.sh TREE
#
# The folder TREE is laid over the root.  Nothing of the machine's own services starts inside, only
# a journal.  Prints "ready PID CGROUP" once booted (PID 1 and its cgroup as they are seen out here),
# lives as long as standard input stays open, and then removes everything, also when whoever held
# the other end was killed.  Prints "cannot: REASON" and exits 77 on a machine where it cannot run.
set -euo pipefail

SYSTEMD=/lib/systemd/systemd
BOOT_S=20

cannot() {
    echo "cannot: $*"
    exit 77
}

# Inside the namespaces, before PID 1 is systemd: $1 is the scratch folder, $2 the tree.
lay_out_root() {
    local root=$1/root node

    mount --make-rprivate / || return
    mount -t tmpfs -o mode=0755 tmpfs "$1" || return
    mkdir "$1/upper" "$1/work" "$root" || return
    cp -a "$2/." "$1/upper" || return
    mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$root" || return
    mount -t proc proc "$root/proc" || return
    # PID 1 raises limits there that are the whole machine's.
    mount --bind "$root/proc/sys" "$root/proc/sys" || return
    mount -o remount,bind,ro "$root/proc/sys" || return
    mount -t sysfs -o ro sysfs "$root/sys" || return
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || return
    mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs "$root/run" || return
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp" || return
    mount -t tmpfs -o mode=0755,nosuid tmpfs "$root/dev" || return
    for node in null zero full random urandom tty; do
        cp -a "/dev/$node" "$root/dev/" || return
    done
    ln -s /proc/self/fd "$root/dev/fd" || return
    mkdir "$root/dev/shm" || return
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm" || return
}

# In the overlay: what the machine starts by itself, mounts from its fstab included, stays out.
# TREE's units lie below /usr and are kept.
silence_services() {
    rm -rf etc/systemd/system etc/systemd/system-generators usr/lib/systemd/system-generators \
        usr/local/lib/systemd/system-generators
    find usr/lib/systemd/system usr/local/lib/systemd/system \
        \( -name '*.wants' -o -name '*.requires' \) -prune -exec rm -rf {} + 2>/dev/null || true
    mkdir -p etc/systemd/system
    printf '%s\n' '[Unit]' 'Requires=systemd-journald.service' 'After=systemd-journald.service' \
        >etc/systemd/system/sandbox.target
}

become_systemd() {
    local problem

    problem=$(lay_out_root "$1" "$2" 2>&1) || cannot "no overlay of /: ${problem%%$'\n'*}"
    cd "$1/root"
    silence_services
    mkdir .outside
    pivot_root . .outside
    umount -l /.outside
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        container=sandbox "$SYSTEMD" --log-target=journal --unit=sandbox.target \
        </dev/null >/dev/null 2>&1
}

inside() {
    timeout 5 nsenter --target "$init" --mount --pid --uts --ipc --net --cgroup -- "$@"
}

has_booted() {
    read -r -d ' ' init 2>/dev/null <"/proc/$outer/task/$outer/children" &&
        [ "$(cat "/proc/$init/comm" 2>/dev/null)" = systemd ] &&
        [ "$(inside systemctl is-active sandbox.target 2>/dev/null)" = active ]
}

finish() {
    # PID 1 takes all other processes and the mounts with it; unshare waits for it.
    if [ -n "${outer:-}" ]; then
        kill -KILL "${init:-$outer}" 2>/dev/null || true
        wait "$outer" 2>/dev/null || true
    fi
    # Killed processes leave a cgroup a moment after their parent was waited for.
    for _ in $(seq 100); do
        find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ -d "$cgroup" ] || break
        sleep 0.05
    done
    rmdir "$scratch"
}

if [ "$1" = --inside ]; then
    exec 2>&3 3>&-
    become_systemd "$2" "$3"
fi

tree=$1
cgroup2=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/self/mounts)
[ "$(id -u)" = 0 ] || cannot "it takes root"
[ -x "$SYSTEMD" ] || cannot "systemd is not installed"
[ -n "$cgroup2" ] || cannot "cgroup2 is not mounted"
cgroup=$cgroup2/gpupipe-test-$$
mkdir "$cgroup" 2>/dev/null || cannot "no cgroup can be made in $cgroup2"
scratch=$(mktemp -d -t "gpupipe-test-$$-XXXXXX")
trap finish EXIT
unshare --mount --pid --uts --ipc --net --cgroup --fork true || cannot "no namespaces can be made"

(
    # The namespace's root is the cgroup that the process is in when it is made.
    echo "$BASHPID" >"$cgroup/cgroup.procs" || cannot "no process can be moved into a cgroup"
    # Descriptor 3 is for what is inside: unshare itself complains whenever its child was killed.
    exec unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child \
        "$0" --inside "$scratch" "$tree" </dev/null 3>&2 2>/dev/null
) &
outer=$!

deadline=$((SECONDS + BOOT_S))
until has_booted; do
    if ! kill -0 "$outer" 2>/dev/null; then
        code=0
        wait "$outer" || code=$?
        exit "$code"
    fi
    if [ "$SECONDS" -ge "$deadline" ]; then
        echo "failed: systemd did not boot within $BOOT_S s"
        exit 1
    fi
    sleep 0.05
done
echo "ready $init $cgroup"
cat >/dev/null

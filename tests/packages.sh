# Packages: what building and testing need, and their installation.  Sourced by check.sh and demo.sh.
#
#   packages_install build        what the build needs
#   packages_install build test   and the tests
#
# On Debian 12 as root, what is missing is installed; elsewhere, or as somebody else, the missing
# names are printed and the script ends.  Nothing is asked of the network when nothing is missing.

packages_build="gcc libc6-dev meson ninja-build pkg-config python3
    libjansson-dev libmsgpack-dev libsmartcols-dev libsystemd-dev libuv1-dev nettle-dev"
packages_test="chrpath clang clang-format g++ libclang-rt-14-dev libparasail-dev libssl-dev
    neovim par2 python3-msgpack python3-numpy python3-pil valgrind xz-utils"
packages_demo="python3-numpy"

# The same on Ubuntu 24.04: untested.
packages_ubuntu() {
    sed -e 's/\blibmsgpack-dev\b/libmsgpack-c-dev/' -e 's/\blibclang-rt-14-dev\b/libclang-rt-18-dev/'
}

packages_missing() {
    local name

    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] ||
            echo "$name"
    done
}

packages_install() {
    local id="" version="" names="" set missing

    for set in "$@"; do
        set=packages_$set
        names="$names ${!set}"
    done
    [ ! -r /etc/os-release ] || {
        id=$(. /etc/os-release && echo "$ID")
        version=$(. /etc/os-release && echo "${VERSION_ID:-}")
    }
    case $id-$version in
    debian-12) ;;
    ubuntu-24.04) names=$(packages_ubuntu <<<"$names") ;;
    *)
        echo "This script knows the packages of Debian 12 (tested) and Ubuntu 24.04 (untested)."
        echo "On this system (${id:-unknown} ${version:-}) install what corresponds to:" $names
        echo "and set PACKAGES=installed to go on."
        [ "${PACKAGES:-}" = installed ] && return 0
        return 1
        ;;
    esac
    missing=$(packages_missing $names)
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "Packages are missing; as root: apt-get install" $missing
        return 1
    fi
    echo "installing:" $missing
    apt-get -qq update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 install \
            --no-install-recommends $missing >/dev/null
}

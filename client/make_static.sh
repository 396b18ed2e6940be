#!/bin/sh
# libgpupipe.a: all that the library needs in one object, whose only global names are those of
# gpupipe.h, so that it neither asks a program for msgpack-c nor gets in the way of its own names.
#
#   make_static.sh LIBGPUPIPE.A GPUPIPE.MAP PARTS.A ARCHIVE...
#
# All of PARTS.A, and what that needs of the others.
set -eu
out=$1 map=$2 parts=$3
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

sed -n 's/^ *\(gpupipe_[a-z_]*\);$/\1/p' "$map" >"$folder/names"
ld -r -o "$folder/gpupipe.o" --whole-archive "$parts" --no-whole-archive "$@"
objcopy --keep-global-symbols="$folder/names" "$folder/gpupipe.o"
rm -f "$out"
ar rcsD "$out" "$folder/gpupipe.o"

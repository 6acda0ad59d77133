#!/usr/bin/env bash
# Puts nginx into a folder and prints where it is. Nothing is installed: Debian's package would start a daemon.
#
#   install-nginx.sh FOLDER      prints FOLDER/usr/sbin
#
# The package is this machine's own release's, from the mirror that it uses; what it needs beside it is there on any
# Debian (libc, libcrypt, PCRE2, OpenSSL, zlib). A second call finds it in place.
set -euo pipefail
export LC_ALL=C

mkdir -p -- "${1:?usage: install-nginx.sh FOLDER}"
folder=$(cd -- "$1" && pwd)
if ! "$folder/usr/sbin/nginx" -v 2>/dev/null; then
    work=$(mktemp -d "$folder/.work.XXXXXX")
    trap 'rm -rf -- "$work"' EXIT
    chmod 755 "$work"                      # apt's unprivileged download user must be able to enter
    download() { (cd -- "$work" && apt-get -q download nginx) >&2; }
    download || { apt-get -q update >&2 && download; }
    dpkg-deb --fsys-tarfile "$work"/nginx_*.deb | tar -x --no-same-owner -C "$folder" ./usr/sbin
    "$folder/usr/sbin/nginx" -v >&2
fi
printf '%s\n' "$folder/usr/sbin"

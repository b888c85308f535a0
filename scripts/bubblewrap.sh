#!/bin/sh
# Installs Debian's bubblewrap, the stronger sandbox of commands, where that is possible. Never fails:
# without it, Batten and its tests use Landlock.
command -v bwrap >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    install="apt-get install --quiet=2 --yes --no-install-recommends bubblewrap"
    limits="-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20"
    $install $limits >/dev/null 2>&1 && exit 0
    apt-get update --quiet=2 $limits >/dev/null 2>&1 && $install $limits >/dev/null 2>&1 && exit 0
fi
echo "bubblewrap is not installed: commands are confined by Landlock" >&2
exit 0

#!/bin/sh
# Installs what the tests use of Debian's packages, where that is possible: bubblewrap, the stronger sandbox
# of commands; Chromium, a browser that follows streams; the shells that completion is written for.
# Never fails: without bubblewrap commands are confined by Landlock, and tests skip what is missing.
wanted=""
for pair in bwrap:bubblewrap chromium:chromium zsh:zsh fish:fish; do
    command -v "${pair%%:*}" >/dev/null || wanted="$wanted ${pair##*:}"
done
[ -z "$wanted" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    limits="-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20"
    install="apt-get install --quiet=2 --yes --no-install-recommends $limits"
    $install $wanted >/dev/null 2>&1 && exit 0
    apt-get update --quiet=2 $limits >/dev/null 2>&1 && $install $wanted >/dev/null 2>&1 && exit 0
    # One that cannot be had keeps none of the others out.
    missing=""
    for package in $wanted; do
        $install "$package" >/dev/null 2>&1 || missing="$missing $package"
    done
    wanted="$missing"
    [ -z "$wanted" ] && exit 0
fi
for package in $wanted; do
    case $package in
        bubblewrap) echo "bubblewrap is not installed: commands are confined by Landlock" >&2 ;;
        *) echo "$package is not installed: tests that need it are skipped" >&2 ;;
    esac
done
exit 0

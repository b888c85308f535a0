#!/bin/sh
# A scripted model repairs a small repository with real tools: no key, no network.
# Everything happens in a scratch directory that is gone afterwards.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
batten=${BATTEN:-$here/../.venv/bin/batten}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

export BATTEN_HOME="$scratch/home"
workspace=$scratch/repository
cp -R "$here/repository" "$workspace"

if command -v git >/dev/null 2>&1; then
    git -C "$workspace" init -q
    git -C "$workspace" add -A
    git -C "$workspace" -c user.name=demo -c user.email=demo@localhost \
        -c commit.gpgsign=false -c core.hooksPath=/dev/null commit -q -m "Before the repair"
fi

title() {
    printf '\n\033[1m%s\033[0m\n' "$1"
}

prompt="The tests fail. Find the bug and fix it."
title "\$ batten -p \"$prompt\""
"$batten" -p "$prompt" --model "scripted/$here/scenario.json" --workspace "$workspace" \
    --permission-mode acceptEdits --allow bash

run=$("$batten" runs --json | sed -n 's/.*"run_id": *"\([^"]*\)".*/\1/p' | head -n 1)

title "\$ batten show $run"
"$batten" show "$run"

title "\$ batten diff $run"
"$batten" diff "$run"

title "\$ python3 -m unittest -q"
(cd "$workspace" && python3 -m unittest -q)

title "Where to look next"
cat <<'NEXT'
  demo/scenario.json          the script of the model; the tools and their results were real
  batten -p PROMPT            the same with a real model: set ANTHROPIC_API_KEY or OPENAI_API_KEY
  batten events RUN           every event of a run, as stored
  batten revert RUN           undo the edits of a run
NEXT

#!/bin/sh
# demo.sh FOLDER: a scripted model repairs a small repository with real tools; no key, no network.
# FOLDER has the virtual environment `venv`. Repository and home stay there until the next demo.
set -eu

folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
case $folder in
"$PWD"/*) folder=${folder#"$PWD"/} ;;
esac

rm -rf "$folder/home" "$folder/repository"
cp -R demo/repository "$folder/repository"
if command -v git >/dev/null 2>&1; then
    git -C "$folder/repository" init -q
    git -C "$folder/repository" add -A
    git -C "$folder/repository" -c user.name=demo -c user.email=demo@localhost \
        -c commit.gpgsign=false -c core.hooksPath=/dev/null commit -q -m "Before the repair"
fi

cat >"$folder/batten" <<'BATTEN'
#!/bin/sh
# Batten with the demo's home, under the name by which it was called.
here=$(cd "$(dirname "$0")" && pwd)
main='import sys; from batten.cli import main; sys.argv[0] = sys.argv.pop(1); main()'
BATTEN_HOME=$here/home exec "$here/venv/bin/python" -P -c "$main" "$0" "$@"
BATTEN
chmod +x "$folder/batten"

bold='' plain=''
if [ -t 1 ]; then
    bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi

# The demo runs to its end without a key being pressed.
export BATTEN_PAGER=''

step() {
    printf '\n%s$ %s%s\n' "$bold" "$1" "$plain"
    sh -c "$1"
}

step "$folder/batten -p 'The tests fail. Find the bug and fix it.' --model scripted/demo/scenario.json \\
    --workspace $folder/repository --permission-mode acceptEdits --allow bash"
step "$folder/batten diff last"
step "cd $folder/repository && python3 -m unittest -q"

# The service: the same repair as a task over HTTP, in a copy of the repository.
: >"$folder/serve.log"
"$folder/batten" serve --port 0 --workers 1 --permission-mode acceptEdits --allow bash \
    >"$folder/serve.log" 2>&1 &
service=$!
trap 'kill $service 2>/dev/null || true' EXIT
url=''
while [ -z "$url" ] && kill -0 $service 2>/dev/null; do
    url=$(sed -n 's/^listening on //p' "$folder/serve.log")
    [ -n "$url" ] || sleep 0.05
done
[ -n "$url" ] || { cat "$folder/serve.log"; exit 1; }

if command -v curl >/dev/null 2>&1; then
    task="{\"prompt\":\"The tests fail. Find the bug and fix it.\",\"requested_model\":\"scripted/$PWD/demo/scenario.json\""
    task="$task,\"working_directory\":\"$(cd "$folder/repository" && pwd)\",\"workspace_mode\":\"in_place\"}"
    git -C "$folder/repository" checkout -q . 2>/dev/null || cp -R demo/repository/. "$folder/repository"
    printf '\n%s$ %s serve &%s\n%s\n' "$bold" "$folder/batten" "$plain" "$(cat "$folder/serve.log")"
    printf '\n%s$ curl -s %s/hecate/v1/tasks --json %s%s\n' "$bold" "$url" "'{…}'" "$plain"
    id=$(curl -s "$url/hecate/v1/tasks" -H 'content-type: application/json' -d "$task" |
        sed -n 's/.*"id":"\(task_[^"]*\)".*/\1/p')
    echo "$id"
    run=$(curl -s -X POST "$url/hecate/v1/tasks/$id/start" | sed -n 's/.*"id":"\(run_[^"]*\)".*/\1/p')
    printf '\n%s$ curl -sN %s/hecate/v1/tasks/%s/runs/%s/events%s\n' "$bold" "$url" "$id" "$run" "$plain"
    curl -sN "$url/hecate/v1/tasks/$id/runs/$run/events" |
        sed -n 's/^data: .*"sequence":\([0-9]*\),.*"type":"\([a-z_.]*\)".*/\1 \2/p' |
        grep -v 'text_delta\|output_chunk'
fi
kill $service
wait $service || true
trap - EXIT

cat <<NEXT

${bold}Try next${plain}
$folder/batten show last      # the timeline of the run
$folder/batten events last    # every event, as stored
$folder/batten verify         # check that everything stored is what was written
$folder/batten revert last    # undo the edits; then \`make demo\` again
$folder/batten serve          # tasks and runs over HTTP; its documentation: /docs

The home is $folder/home, the repository $folder/repository, the script of the model
demo/scenario.json; the tools and their results were real.
NEXT

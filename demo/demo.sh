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

cat <<NEXT

${bold}Try next${plain}
$folder/batten show last      # the timeline of the run
$folder/batten events last    # every event, as stored
$folder/batten verify         # check that everything stored is what was written
$folder/batten revert last    # undo the edits; then \`make demo\` again

The home is $folder/home, the repository $folder/repository, the script of the model
demo/scenario.json; the tools and their results were real.
NEXT

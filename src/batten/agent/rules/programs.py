"""The programs that only read, each with the options and operands that leave it at that.

To add one, list what it may be given, in the notation of `Program`; what is not listed is asked
about. Look in its manual for options that write a file, run a program, use the network, or read
names of files from a file (`--files0-from`), and leave them out; for options whose value is a file
to read (`=PATH`); and for operands that are files to write (`most`).
"""

from batten.agent.rules.program_words import Program
from batten.agent.rules.shell import name_set

_GREP_OPTIONS = (
    "-EFGPivwxyczZHhnoqsTUabLlrRIV0123456789 -e= -f=PATH -m=NUMBER -A=NUMBER -B=NUMBER -C=NUMBER "
    "--extended-regexp --fixed-strings --basic-regexp --perl-regexp --regexp= --file=PATH "
    "--ignore-case --no-ignore-case --word-regexp --line-regexp --null-data --no-messages "
    "--invert-match --max-count=NUMBER --byte-offset --line-number --line-buffered "
    "--with-filename --no-filename --label= --only-matching --quiet --silent --binary-files= "
    "--text --recursive --dereference-recursive --include= --exclude= --exclude-from=PATH "
    "--exclude-dir= --files-without-match --files-with-matches --count --initial-tab --null "
    "--before-context=NUMBER --after-context=NUMBER --context=NUMBER --group-separator= "
    "--no-group-separator --color? --colour? --binary --version --help"
)
_GREP = Program(
    _GREP_OPTIONS,
    skipped=1,
    instead="-e -f --regexp --file --version --help",
    below="-r -R --recursive --dereference-recursive",
    follows="-R --dereference-recursive",
)
_RG = Program(
    "-aFilNnopqsSUuvwxPHILhVcb0. -A=NUMBER -B=NUMBER -C=NUMBER -d=NUMBER -e= -E= -f=PATH -g= "
    "-j=NUMBER -m=NUMBER -M=NUMBER -r= -t= -T= --after-context=NUMBER --before-context=NUMBER "
    "--context=NUMBER --context-separator= --max-depth=NUMBER --regexp= --encoding= --file=PATH "
    "--glob= --iglob= --glob-case-insensitive --ignore-file=PATH --threads=NUMBER "
    "--max-count=NUMBER --max-columns=NUMBER --max-columns-preview --max-filesize= --replace= "
    "--type= --type-not= --type-add= --type-clear= --type-list --files --files-with-matches "
    "--files-without-match --follow --no-follow --binary --block-buffered --byte-offset "
    "--case-sensitive --color= --colors= --column --no-column --count --count-matches --crlf "
    "--debug --engine= --field-context-separator= --field-match-separator= --fixed-strings "
    "--heading --no-heading --hidden --no-hidden --ignore-case --include-zero --invert-match "
    "--json --line-buffered --line-number --no-line-number --line-regexp --mmap --no-mmap "
    "--multiline --multiline-dotall --no-config --no-ignore --no-ignore-dot --no-ignore-exclude "
    "--no-ignore-files --no-ignore-global --no-ignore-parent --no-ignore-vcs --no-messages "
    "--no-require-git --no-unicode --null --null-data --one-file-system --only-matching "
    "--passthru --path-separator= --pcre2 --pretty --quiet --smart-case --sort= --sortr= --stats "
    "--text --trace --trim --unrestricted --version --vimgrep --with-filename --no-filename "
    "--word-regexp --help",
    skipped=1,
    instead="-e -f --regexp --file --files --type-list --version --help -V -h",
    follows="-L --follow",
    is_recursive=True,
    may_write=True,
)
_SUM = Program(
    "-btz -l=NUMBER -a= --binary --text --zero --tag --untagged --raw --base64 --debug "
    "--length=NUMBER --algorithm= --version --help"
)
_LS = Program(
    "-aAbBcCdDfFgGhHiklLmnNopqQrRsStuUvxXZ1 -I= -w=NUMBER -T=NUMBER --all --almost-all --author "
    "--escape --block-size= --ignore-backups --color? --directory --dired --classify? --file-type "
    "--format= --full-time --group-directories-first --no-group --human-readable --si "
    "--dereference-command-line --dereference-command-line-symlink-to-dir --hide= --hyperlink? "
    "--indicator-style= --inode --ignore= --kibibytes --dereference --numeric-uid-gid --literal "
    "--hide-control-chars --show-control-chars --quote-name --quoting-style= --reverse "
    "--recursive --size --sort= --time= --time-style= --tabsize=NUMBER --width=NUMBER --context "
    "--zero --version --help",
    below="-R --recursive",
    follows="-L --dereference",
)
_DIFF = Program(
    "-qscuenypdtTirNiEZbwBa0123456789 -C=NUMBER -U=NUMBER -W=NUMBER -F= -L= -x= -X=PATH -S= -I= "
    "-D= --normal --brief --report-identical-files --context? --unified? --ed --rcs "
    "--side-by-side --width=NUMBER --left-column --suppress-common-lines --show-c-function "
    "--show-function-line= --label= --expand-tabs --initial-tab --tabsize=NUMBER "
    "--suppress-blank-empty --recursive --no-dereference --new-file --unidirectional-new-file "
    "--ignore-file-name-case --no-ignore-file-name-case --exclude= --exclude-from=PATH "
    "--starting-file= --from-file=PATH --to-file=PATH --ignore-case --ignore-tab-expansion "
    "--ignore-trailing-space --ignore-space-change --ignore-all-space --ignore-blank-lines "
    "--ignore-matching-lines= --text --strip-trailing-cr --ifdef= --minimal "
    "--horizon-lines=NUMBER --speed-large-files --color? --palette= --version --help",
    below="-r --recursive",
    # The files of two folders are compared, links among them.
    always_follows=True,
)
_TREE = Program(
    "-adfxpugshDFrtcUJXCnNqQASlv -L=NUMBER -P= -I= -H= -T= --noreport --nolinks --prune --inodes "
    "--device --dirsfirst --filesfirst --du --si --matchdirs --ignore-case --gitignore "
    "--metafirst --fflinks --sort? --charset? --filelimit? --timefmt? --version --help",
    follows="-l",
    may_write=True,
    values_apart=True,
)
_SORT = Program(
    "-bdfgiMhnRrVcCmsuz -k= -t= -S= --ignore-leading-blanks --dictionary-order --ignore-case "
    "--general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort "
    "--numeric-sort --random-sort --random-source=PATH --reverse --sort= --version-sort "
    "--batch-size=NUMBER --check? --debug --key= --merge --stable --buffer-size= "
    "--field-separator= --parallel=NUMBER --unique --zero-terminated --version --help",
    may_write=True,
)
_DU = Program(
    "-0abcDHhklLmPsSx -B= -d=NUMBER -t= -X=PATH --null --all --apparent-size --block-size= "
    "--bytes --total --dereference-args --max-depth=NUMBER --human-readable --inodes "
    "--dereference --count-links --no-dereference --separate-dirs --si --summarize --threshold= "
    "--time? --time-style= --exclude-from=PATH --exclude= --one-file-system --version --help",
    follows="-L --dereference",
)
_COLUMN = Program(
    "-tedLJxV -O= -N= -l= -E= -H= -R= -T= -W= -r= -i= -p= -c= -o= -s= --table --table-name= "
    "--table-order= --table-columns= --table-columns-limit= --table-noextreme= "
    "--table-noheadings --table-header-repeat --table-hide= --table-right= --table-truncate= "
    "--table-wrap= --keep-empty-lines --json --tree= --tree-id= --tree-parent= --output-width= "
    "--output-separator= --separator= --fillrows --help --version"
)
PROGRAMS: dict[str, Program] = {
    "cat": Program(
        "-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs "
        "--show-nonprinting --help --version"
    ),
    "nl": Program(
        "-p -b= -d= -f= -h= -i= -l= -n= -s= -v= -w= --body-numbering= --section-delimiter= "
        "--footer-numbering= --header-numbering= --line-increment= --join-blank-lines= "
        "--number-format= --no-renumber --number-separator= --starting-line-number= "
        "--number-width= --help --version"
    ),
    "tac": Program("-br -s= --before --regex --separator= --help --version"),
    "rev": Program("-hV --help --version"),
    "cmp": Program(
        "-bls -i= -n= --print-bytes --ignore-initial= --verbose --bytes= --quiet --silent --help"
    ),
    "stat": Program(
        "-Lft -c= --dereference --file-system --cached= --format= --printf= --terse --help"
    ),
    "realpath": Program(
        "-emLPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet "
        "--relative-to=PATH --relative-base=PATH --strip --no-symlinks --zero --help"
    ),
    "readlink": Program(
        "-femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline "
        "--quiet --silent --verbose --zero --help"
    ),
    "strings": Program(
        "-adfwhv -# -n=NUMBER -t= -e= -s= --all --data --print-file-name --bytes=NUMBER --radix= "
        "--encoding= --include-all-whitespace --output-separator= --help --version",
        expands="@",
    ),
    "od": Program(
        "-abcdfilosxv -A= -j= -N= -S= -t= -w? --address-radix= --endian= --skip-bytes= "
        "--read-bytes= --strings? --format= --output-duplicates --width? --help"
    ),
    "hexdump": Program(
        "-bcCdoxv -L? -e= -f=PATH -n= -s= --one-byte-octal --one-byte-char --canonical "
        "--two-bytes-decimal --two-bytes-octal --two-bytes-hex --color? --format= "
        "--format-file=PATH --length= --skip= --no-squeezing --help"
    ),
    "column": _COLUMN,
    "expand": Program("-i -t= -# --initial --tabs= --help"),
    "unexpand": Program("-a -t= -# --all --first-only --tabs= --help"),
    "paste": Program("-sz -d= --delimiters= --serial --zero-terminated --help"),
    **dict.fromkeys(
        name_set("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum"), _SUM
    ),
    "head": Program(
        "-qvz -c= -n= -# --bytes= --lines= --quiet --silent --verbose --zero-terminated --help"
    ),
    "tail": Program(
        "-fFqvz -c= -n= -s= -# --bytes= --lines= --follow? --quiet --silent --verbose "
        "--zero-terminated --retry --pid=NUMBER --sleep-interval= --max-unchanged-stats= --help"
    ),
    "wc": Program(
        "-cmlLw --bytes --chars --lines --max-line-length --words --total= --help --version"
    ),
    "ls": _LS,
    "cut": Program(
        "-nsz -b= -c= -d= -f= --bytes= --characters= --delimiter= --fields= --complement "
        "--only-delimited --output-delimiter= --zero-terminated --help"
    ),
    "tr": Program(
        "-cCdst --complement --delete --squeeze-repeats --truncate-set1 --help", operands="text"
    ),
    "fold": Program("-bs -w=NUMBER -# --bytes --spaces --width=NUMBER --help"),
    "comm": Program(
        "-123z --check-order --nocheck-order --output-delimiter= --total --zero-terminated --help"
    ),
    "diff": _DIFF,
    "file": Program(
        "-bikLhnNr0 -e= -F= --brief --mime --mime-type --mime-encoding --extension --keep-going "
        "--dereference --no-dereference --no-buffer --no-pad --raw --print0 --exclude= "
        "--separator= --help --version",
    ),
    "du": _DU,
    "df": Program(
        "-ahHiklPTv -B= -t= -x= --all --block-size= --human-readable --si --inodes --local "
        "--no-sync --output? --portability --total --type= --print-type --exclude-type= --help"
    ),
    "hostname": Program(
        "-dfIs --domain --fqdn --long --all-ip-addresses --short --help --version",
        operands="none",
    ),
    "xxd": Program(
        "-abCdeEipuv -c=NUMBER -g=NUMBER -l=NUMBER -o=NUMBER -s=NUMBER",
        most=1,
        may_write=True,
        one_by_one=True,
    ),
    "base64": Program("-di -w=NUMBER --decode --ignore-garbage --wrap=NUMBER --help"),
    "tree": _TREE,
    "sort": _SORT,
    "uniq": Program(
        "-cdDiuz -f=NUMBER -s=NUMBER -w=NUMBER -# --count --repeated --all-repeated? "
        "--skip-fields=NUMBER --group? --ignore-case --skip-chars=NUMBER --unique "
        "--zero-terminated --check-chars=NUMBER --help",
        most=1,
        may_write=True,
    ),
    **dict.fromkeys(name_set("grep egrep fgrep"), _GREP),
    "rg": _RG,
    "jq": Program(
        "-nrjasSCMecRh --null-input --raw-input --slurp --compact-output --raw-output "
        "--raw-output0 --join-output --ascii-output --sort-keys --color-output "
        "--monochrome-output --tab --indent=NUMBER --unbuffered --stream --stream-errors --seq "
        "--exit-status --help",
        skipped=1,
    ),
    "pgrep": Program(
        "-lavwcfinox -d= -g= -G= -O= -P= -s= -t= -u= -U= -r= --delimiter= --list-name --list-full "
        "--inverse --lightweight --count --full --pgroup= --group= --ignore-case --newest "
        "--oldest --older= --parent= --session= --terminal= --euid= --uid= --exact --runstates= "
        "--ignore-ancestors --help",
        operands="text",
        may_write=True,
    ),
    "free": Program(
        "-bkmghltvw -s= -c= --bytes --kibi --mebi --gibi --tebi --human --si --lohi --total "
        "--committed --seconds= --count= --wide --help",
        operands="none",
    ),
    "uptime": Program("-psV --pretty --since --help --version", operands="none"),
    "wait": Program("-nf", operands="text", may_write=True),
    "date": Program(
        "-uR -d= -I? -r=PATH -f=PATH --date= --file=PATH --iso-8601? --rfc-3339= --rfc-email "
        "--reference=PATH --utc --universal --debug --help",
        operands="text",
        text=r"\+.*",
        most=1,
        may_write=True,
    ),
    "sed": Program(
        "-nErsuz -e= -l=NUMBER --quiet --silent --regexp-extended --separate --unbuffered "
        "--null-data --zero-terminated --expression= --line-length=NUMBER --help --version",
        skipped=1,
        instead="-e --expression --help --version",
        may_write=True,
    ),
}

PRINTING = name_set(
    "echo true false : pwd basename dirname whoami id groups uname nproc seq sleep which type "
    "exit break continue"
)
"""Those that no word can make do anything but print, or end."""

VERSIONED: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        name_set("npx git make gcc g++ clang cmake ruby perl php bash docker tsc deno bun rg jq"),
        frozenset(("--version",)),
    ),
    **dict.fromkeys(
        name_set("python python3 pip pip3 uv ruff mypy"), frozenset(("--version", "-V"))
    ),
    **dict.fromkeys(name_set("node npm"), frozenset(("--version", "-v"))),
    **dict.fromkeys(name_set("java javac"), frozenset(("--version", "-version"))),
}
"""Programs that print their version without a look at the project. Not `cargo`, `yarn` and `pnpm`,
which may be another program that the project names, nor `pytest` and `poetry`, which load its
plugins."""

"""The parts of completion scripts that are the same for all commands.

`@flags@` and `@kinds@` become branches of `case`: the flags of a command, and what can stand after
a flag or in a position. `-` is print mode, which has no command.
"""

_TABLES = """_batten_flags() {
  case $1 in
@flags@
  esac
}

_batten_kind() {
  case $1 in
@kinds@
  esac
}
"""

BASH = r"""# Completion of batten for bash: source <(batten completion bash)

@tables@
_batten() {
  local IFS=$' \t\n' cur=${COMP_WORDS[COMP_CWORD]} command=- before= kind= word
  local -i start=1 place=0 i
  case " @commands@ " in
    *" ${COMP_WORDS[1]} "*) ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]} start=2 ;;
  esac
  for ((i = start; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == "=" ]]; then continue; fi
    if [[ $word == -- ]]; then compopt -o default 2>/dev/null; COMPREPLY=(); return; fi
    if [[ -n $before && $word != -* ]]; then before=; continue; fi
    before=
    if [[ $word == -* ]]; then
      [[ -n $(_batten_kind "$command $word") ]] && before=$word
    else
      place+=1
    fi
  done
  if [[ $cur == "=" ]]; then cur=; fi
  if [[ -n $before && $cur != -* ]]; then
    kind=$(_batten_kind "$command $before")
  elif [[ $cur == -* ]]; then
    kind="words $(_batten_flags "$command")"
  elif ((COMP_CWORD == 1)); then
    kind="words @commands@"
  else
    kind=$(_batten_kind "$command $((place + 1))")
    [[ -n $kind ]] || kind=$(_batten_kind "$command *")
  fi
  local offered
  case $kind in
    "words "*) offered=$(compgen -W "${kind#words }" -- "$cur") ;;
    file) compopt -o filenames 2>/dev/null; offered=$(compgen -f -- "$cur") ;;
    dir) compopt -o filenames 2>/dev/null; offered=$(compgen -d -- "$cur") ;;
    text | "") offered= ;;
    *)
      offered=$("${COMP_WORDS[0]}" completion --list "$kind" 2>/dev/null)
      offered=$(compgen -W "$offered" -- "$cur")
      ;;
  esac
  IFS=$'\n'
  COMPREPLY=($offered)
}

complete -F _batten batten
""".replace("@tables@", _TABLES)

ZSH = r"""#compdef batten
# Completion of batten for zsh: source <(batten completion zsh), after compinit;
# or write it to a file _batten in a folder of $fpath.

@tables@
_batten() {
  local cur=$words[CURRENT] command=- before= kind= word
  local -i start=2 place=0 i
  local -a commands offered
  commands=(
@describe@
  )
  if (( CURRENT > 2 )) && [[ " @commands@ " == *" $words[2] "* ]]; then
    command=$words[2] start=3
  fi
  for ((i = start; i < CURRENT; i++)); do
    word=$words[i]
    if [[ $word == -- ]]; then _default; return; fi
    if [[ -n $before && $word != -* ]]; then before=; continue; fi
    before=
    if [[ $word == -* ]]; then
      [[ $word != *=* && -n $(_batten_kind "$command $word") ]] && before=$word
    else
      (( place += 1 ))
    fi
  done
  if [[ -n $before && $cur != -* ]]; then
    kind=$(_batten_kind "$command $before")
  elif [[ $cur == -*=* ]]; then
    kind=$(_batten_kind "$command ${cur%%=*}")
    compset -P '*='
  elif [[ $cur == -* ]]; then
    offered=("${(@f)$(_batten_flags $command)}")
    _describe -o flag offered
    return
  elif (( CURRENT == 2 )); then
    _describe command commands
    return
  else
    kind=$(_batten_kind "$command $((place + 1))")
    [[ -n $kind ]] || kind=$(_batten_kind "$command *")
  fi
  case $kind in
    "words "*) offered=(${=kind#words }); compadd -a offered ;;
    file) _files ;;
    dir) _files -/ ;;
    text | "") return 1 ;;
    *)
      offered=(${(f)"$($words[1] completion --list $kind 2>/dev/null)"})
      compadd -V names -a offered
      ;;
  esac
}

if [[ $funcstack[1] == _batten ]]; then
  _batten "$@"
else
  compdef _batten batten
fi
""".replace("@tables@", _TABLES)

FISH = r"""# Completion of batten for fish: batten completion fish | source

function __batten_command
  set -l words (commandline -opc)
  set -e words[1]
  if set -q words[1]; and contains -- $words[1] @commands@
    echo $words[1]
  end
end

function __batten_in
  test (__batten_command) = $argv[1] 2>/dev/null
end

function __batten_in_print_mode
  test -z (__batten_command)
end

function __batten_needs_command
  test (count (commandline -opc)) -eq 1
end

function __batten_list
  set -l words (commandline -opc)
  $words[1] completion --list $argv[1] 2>/dev/null
end

complete -c batten -f
@complete@
"""

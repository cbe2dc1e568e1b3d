#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# completions.sh - the completions of bash, zsh and fish, in those shells
#
# Each shell loads its file as it does when installed and is asked what it
# would offer behind a command line. rv, sinfo and srun are stand-ins, so no
# Slurm is needed. A shell that is not there is a skip. Last line: the sum.
set -u
src=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
# shellcheck source=tests/options.bash
. "$src/tests/options.bash"
dir=$src/etc/completions
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

mkdir "$work/bin"
cat >"$work/bin/rv" <<'X'
#!/bin/sh
case $1 in env) echo 'TOKEN=********' ;; *) printf 'JOB NAME\n17 night\n18 noon\n' ;; esac
X
cat >"$work/bin/sinfo" <<'X'
#!/bin/sh
case $* in *%G*) echo gpu:a100:4,gpu:v100:2 ;; *) echo debug; echo night ;; esac
X
chmod +x "$work"/bin/*
export PATH=$work/bin:$PATH HOME=$work XDG_CONFIG_HOME=$work XDG_DATA_HOME=$work

# in_bash LINE - what bash offers, one a line
in_bash ()
{
    bash --norc -c '
        . "$1/rv"
        read -ra COMP_WORDS <<<"$2"
        case $2 in *" ") COMP_WORDS+=("") ;; esac
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _rv
        printf "%s\n" "${COMPREPLY[@]}"' bash "$dir" "$1"
}

in_fish ()
{
    fish --no-config -c 'source $argv[1]/rv.fish; complete -C $argv[2]' "$dir" "$1" | cut -f 1
}

# zsh completes in an editor alone: one on a terminal of its own is typed to,
# when its editor says that it is ready, and what it lists is read until the
# line has been left.
in_zsh ()
{
    cat >"$work/ask.zsh" <<'X'
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "stty cols 200 rows 100; PS1=; PS2=; TERM=dumb; unsetopt prompt_sp zle_bracketed_paste 2>/dev/null; unset zle_bracketed_paste"
zpty -w z "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d \$HOME/zcompdump; setopt no_beep no_auto_menu; LISTMAX=1000; bindkey '^I' list-choices"
zpty -w z "zle-line-init () { print -n RE''ADY }; zle -N zle-line-init"
until [[ $all == *READY* ]]; do zpty -r z seen '*READY' || exit 1; all+=$seen; done
zpty -w -n z "$2"$'\t'$'\x15'"print DO''NE"$'\n'
seen= all=
until [[ $seen == *DONE* ]]; do zpty -r z seen || break; all+=$seen; done
print -r -- "$all"
zpty -d z
X
    timeout 60 zsh -f "$work/ask.zsh" "$dir" "$1" | tr -d '\r' | sed 's/ -- .*//' | tr -s ' ' '\n'
}

# offers SHELL LINE WANTED... - all of WANTED are offered; "!WORD" is not
offers ()
{
    local shell=$1 line=$2 got bad='' w
    shift 2
    got=$("in_$shell" "$line" 2>"$work/err")
    for w; do
        case $w in
            !*) grep -qxF -- "${w#!}" <<<"$got" && bad="$bad $w" ;;
            *) grep -qxF -- "$w" <<<"$got" || bad="$bad $w" ;;
        esac
    done
    if [ -z "$bad" ] && [ ! -s "$work/err" ]; then
        passed=$((passed + 1))
        echo "ok - $shell: '$line' offers $*"
    else
        failed=$((failed + 1))
        echo "not ok - $shell: '$line' offers $* (wrong:$bad)"
        { cat "$work/err"; echo "$got" | head -n 40; } | sed 's/^/    /'
    fi
}

# all_options SHELL CMD - no more and no less than `rv CMD --help` tells; those
# of pyxis it names as one
all_options ()
{
    local got want
    got=$("in_$1" "rv $2 -" 2>"$work/err" | grep -E '^--?[a-z]' -i | grep -vE -- '^--container-' | sort -u)
    want=$(help_options "$2" | grep -vE -- '^--container-')
    [ "$2" != up ] || want=$(printf '%s\n' "$want" "$(help_options run)" | grep -vxE -- '-[fl]|--(follow|label|array|checkpoint|snapshot|output|fanout|no-fanout|container-.*)')
    want=$(printf -- '%s\n--help\n' "$want" | sort -u)
    if [ "$got" = "$want" ] && [ ! -s "$work/err" ]; then
        passed=$((passed + 1))
        echo "ok - $1: rv $2 has $(wc -l <<<"$want") options"
    else
        failed=$((failed + 1))
        echo "not ok - $1: rv $2 has the options of its help"
        { cat "$work/err"; diff <(echo "$want") <(echo "$got"); } | sed 's/^/    /'
    fi
}

commands=$(commands)
[ "$(wc -w <<<"$commands")" -gt 10 ] || { echo "not ok - $rv lists no commands"; failed=1; }
for shell in bash zsh fish; do
    if ! command -v "$shell" >/dev/null; then
        skipped=$((skipped + 1))
        echo "ok - $shell # SKIP it is not installed"
        continue
    fi
    # shellcheck disable=SC2086 # words
    offers "$shell" 'rv ' $commands
    offers "$shell" 'rv run --' --exclude --slurm --gpus --follow --dry-run
    offers "$shell" 'rv run -t ' a100 v100
    offers "$shell" 'rv run -p ' debug night
    offers "$shell" 'rv stop ' 17 night noon
    offers "$shell" 'rv logs -' --rank --tail
    offers "$shell" 'rv sandbox ' up down status env
    offers "$shell" 'rv sandbox --' --nodes --cgroup --mig
    offers "$shell" 'rv doctor --' --nodes --json
    offers "$shell" 'rv up --' --gpus --time
    offers "$shell" 'rv attach ' 17 noon
    offers "$shell" 'rv gpu -' --watch
    offers "$shell" 'rv help ' $commands
    for c in $commands; do all_options "$shell" "$c"; done
    offers "$shell" 'rv completion ' bash zsh fish
    offers "$shell" 'rv env ' set list rm import
    offers "$shell" 'rv env rm ' TOKEN
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]

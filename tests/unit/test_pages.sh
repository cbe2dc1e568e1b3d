#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_pages.sh - each command has a manual page, and the page, the help and the
# program agree about options
set -u
src=${top_srcdir:?}
. "$src/tests/options.bash"
n=0 bad=0

# check TEXT WRONG - ok when nothing is wrong
check ()
{
    n=$((n + 1))
    if [ -z "$2" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        printf '# %s\n' "$2" | tr '\n' ' '
        echo
        bad=1
    fi
}

# section PAGE NAME - its lines
section ()
{
    awk -v name="$2" '/^\.SH /{on = $0 == ".SH " name; next} on' "$1"
}

# page_options PAGE - the options that have a paragraph of their own
page_options ()
{
    section "$1" OPTIONS | awk 'tag {print} {tag = /^\.TP/}' | sed 's/\\-/-/g; s/\\f[A-Z]/ /g' | options_in
}

# differ A B - the lines that only one of two lists has
differ () { comm -3 <(printf '%s\n' "$1") <(printf '%s\n' "$2") | tr -d '\t' | sed '/^$/d'; }

listed=$(commands)
check "rv help lists commands" "$([ "$(wc -l <<<"$listed")" -gt 10 ] || echo "$listed")"
check "a page for each command, no other" "$(differ \
    "$(sort <<<"$listed")" \
    "$(cd "$src/launcher" && for f in rv-*.1; do f=${f#rv-}; echo "${f%.1}"; done | sort)")"
check "each page is installed" "$(for f in "$src"/launcher/rv*.1; do
    grep -qF "%D%/${f##*/}" "$src/launcher/Makemodule.am" || echo "$f"; done)"
for c in $listed; do
    page=$src/launcher/rv-$c.1
    check "rv $c tells of options" "$([ -n "$(help_options "$c")" ] || echo none)"
    check "rv-$c(1) and its help have the same options" \
        "$(differ "$(help_options "$c")" "$(page_options "$page" | grep -vx -- --help)")"
    check "rv-$c(1) has all sections" "$(for s in SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
        [ -n "$(section "$page" "$s")" ] || echo "$s"; done)"
    check "rv-$c(1) names its schema" "$(for s in $(section "$page" OPTIONS | grep -oE 'rv\.[a-z]+/[0-9]'); do
        [ -e "$src/etc/schema/${s/\//-}.json" ] || echo "$s"; done
        help_options "$c" | grep -qx -- --json && ! section "$page" OPTIONS | grep -qE 'rv\.[a-z]+/[0-9]' && echo none)"
    check "rv(1) leads to rv-$c(1)" "$(grep -qF "rv\\-$c (1)" "$src/launcher/rv.1" || echo "no word of it")"
    check "rv $c knows its help, and rv help $c says the same" \
        "$(differ "$("$rv" "$c" --help 2>&1)" "$("$rv" help "$c" 2>&1)")"
done

# What the program takes and no help tells: an old name, and what it refuses.
# Those of pyxis are told as one.
taken=$(grep -rhoE '^ +\{"[a-z-]+", (no|required|optional)_argument' --include='*.c' --exclude-dir=exec "$src/launcher" | sed 's/^[^"]*"/--/; s/".*//' | sort -u)
told=$(for c in $listed; do help_options "$c"; done | grep '^--' | sort -u)
check "each option of the program stands in a help" "$(comm -23 <(echo "$taken") <(echo "$told") \
    | grep -vxE -- '--(help|gpu|clusters|(no-)?container-.*)')"
check "each option of a help is the program's" "$(comm -13 <(echo "$taken") <(echo "$told"))"

for pair in bash:rv zsh:_rv fish:rv.fish; do
    check "rv completion ${pair%:*} prints the file" \
        "$("$rv" completion "${pair%:*}" 2>&1 | cmp - "$src/etc/completions/${pair#*:}" 2>&1)"
done
check "rv completion of no shell is refused" "$("$rv" completion ksh >/dev/null 2>&1; [ $? = 2 ] || echo taken)"

# A page that another names is there, if it is ours.
check "no page leads to one that is not there" "$(cd "$src" && grep -hoE '\brv[a-z_.\\-]* \([1-8]\)' launcher/rv*.1 | tr -d '\\ ' | sort -u \
    | while IFS='()' read -r name part; do
        [ -n "$(find launcher spank libtrain -name "$name.$part" -print -quit)" ] || echo "$name($part)"; done)"
echo "1..$n"
exit $bad

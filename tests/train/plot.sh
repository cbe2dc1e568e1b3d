#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plot.sh - rv-train plot: curves of metrics in a terminal and as SVG
: "${top_srcdir:?}"
# shellcheck source=tests/train/lib.bash
. "$top_srcdir/tests/train/lib.bash"

for ((i = 1; i <= 9; i++)); do
    echo "{\"step\":$i,\"loss\":$((10 - i)),\"lr\":0.$i}" >>"$tmp/down"
    echo "{\"step\":$i,\"loss\":$i}" >>"$tmp/up"
done

plot ()
{
    timeout 60 "$train" plot "$@" >"$tmp/out" 2>"$tmp/errors"
}

# draws ARG... <WANT - does it print this?
draws ()
{
    cat >"$tmp/want"
    plot "$@" && diff "$tmp/want" "$tmp/out"
}

refused ()
{
    local want=$1 pattern=$2 rc
    shift 2
    plot "$@"
    rc=$?
    cat "$tmp/errors" >>"$tmp/out"
    [ $rc = "$want" ] && grep -Eq -- "$pattern" "$tmp/errors"
}

ok "two runs over each other" draws --columns 9 --rows 9 "$tmp/down" "$tmp/up" <<EOF
loss
         9 |a       b
           | a     b
           |  a   b
           |   a b
           |    b
           |   b a
           |  b   a
           | b     a
         1 |b       a
           +---------
            1  9  step
            a  $tmp/down
            b  $tmp/up
EOF
ok "one run, of dots" draws --columns 8 --rows 8 --key lr "$tmp/down" <<'EOF'
lr
       0.9 |      ⢀⠎
           |     ⢀⠎
           |    ⢀⠎
           |    ⡎
           |   ⡜
           |  ⡜
           | ⡜
       0.1 |⡜
           +--------
            1 9  step
EOF
half ()
{
    printf '{"step":1,"loss":8}\n{"step":2,"loss":2}\n' >"$tmp/two"
    plot --columns 8 --rows 8 --smooth 0.5 "$tmp/two" && grep -q '^         4 |' "$tmp/out" &&
        plot --columns 8 --rows 8 "$tmp/two" && grep -q '^         2 |' "$tmp/out"
}
ok "smoothing: (8/2 + 2) / 1.5 is 4" half
logs ()
{
    printf '{"step":1,"loss":100}\n{"step":2,"loss":10}\n{"step":3,"loss":0}\n{"step":4,"loss":null}\n{"step":5,"loss":1}\n' >"$tmp/log"
    plot --log --columns 9 --rows 9 "$tmp/log" "$tmp/log" && grep -q '^loss (log)' "$tmp/out" &&
        [ "$(sed -n 6p "$tmp/out" | cut -c 1-15)" = "           |  b" ] && grep -q "2 points without a value above 0" "$tmp/errors"
}
ok "a log axis, and what it leaves out" logs
svg ()
{
    plot --svg "$tmp/a.svg" "$tmp/down" "$tmp/up" && [ ! -s "$tmp/out" ] &&
        [ "$(grep -c '<polyline' "$tmp/a.svg")" = 2 ] && grep -q 'points="70.0,20.0 ' "$tmp/a.svg" &&
        grep -q ' 840.0,430.0 "/>' "$tmp/a.svg" && tail -n 1 "$tmp/a.svg" | grep -q '^</svg>$'
}
ok "SVG: from corner to corner" svg
half_line ()
{
    { cat "$tmp/down"; printf '{"step":10,"lo'; } >"$tmp/live"
    plot "$tmp/live"
}
ok "a line that is being written" half_line
small "$tmp/p.ini" '[log]' "file = $tmp/m.jsonl"
real ()
{
    run "$tmp/p.ini" && plot "$tmp/m.jsonl" && plot --x tokens --key grad_norm "$tmp/m.jsonl"
}
ok "metrics of a run" real
ok "no file" refused 2 "no file of metrics"
ok "a file that is not there" refused 3 "none: No such file" "$tmp/none"
echo nonsense >>"$tmp/up"
ok "a line that is none" refused 3 "up:10: no JSON" "$tmp/up"
ok "a key that is none" refused 3 "down:1: it has no number 'los'" --key los "$tmp/down"
ok "smoothing of 1" refused 2 "smooth '1'" --smooth 1 "$tmp/down"
ok "a file that cannot be written" refused 3 "$tmp/none/a.svg" --svg "$tmp/none/a.svg" "$tmp/down"
plan

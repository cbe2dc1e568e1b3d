# SPDX-License-Identifier: Apache-2.0
# metrics.bash - files of metrics compared: the scripts here and tests/slurm
# shellcheck shell=bash

# losses FILE [NAME] - the losses, or what NAME says, of a file of metrics, one a line.
losses ()
{
    sed -E 's/.*"'"${2:-loss}"'":([^,]*),.*/\1/' "$1"
}

# near A B MOST N [NAME] - do the N losses of two files of metrics differ by at most?
near ()
{
    paste <(losses "$1" "${5:-loss}") <(losses "$2" "${5:-loss}") |
        awk -v most="$3" -v n="$4" '{ d = $1 - $2; if (d > most || d < -most) bad = 1 }
            END { exit bad || NR != n }'
}

# alike A B - are two files of metrics the same but for seconds and memory?
alike ()
{
    local drop='s/"(mem_bytes|[a-z]+_s)":[^,}]*//g'
    diff <(sed -E "$drop" "$1") <(sed -E "$drop" "$2")
}

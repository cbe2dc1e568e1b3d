# SPDX-License-Identifier: Apache-2.0
# options.bash - what `rv CMD --help` says that it takes, for the tests of pages
# and completions
rv=${top_builddir:?}/rv

# commands - those that `rv help` lists
commands ()
{
    "$rv" help | sed -n '/^Commands:$/,/^$/s/^  \([a-z]*\) .*/\1/p'
}

# options_in - the options in the words of stdin, one a line, sorted
options_in ()
{
    grep -oiE -- '(^|[^[:alnum:]_=-])--?[a-z][a-z-]*' | sed 's/^[^-]*//' | sort -u
}

# help_options CMD - of the lines that tell of options, what stands before the text
help_options ()
{
    "$rv" "$1" --help | grep -E '^ +-' | sed -E 's/^ +//; s/  .*//' | options_in | grep -vx -- --help
}

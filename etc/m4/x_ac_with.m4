# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_ARG([name], [what it gives])
#   X_AC_WITH_RESULT([name], [yes|no], [summary text], [package hint])
# DESCRIPTION
#   The shared half of every optional part. ARG declares --with-name and sets
#   with_name to auto, yes, no or a directory, and x_ac_dir to that directory.
#   RESULT ends the check: asked and missing is an error that names the
#   package; auto and missing is a line of the summary.
AC_DEFUN([X_AC_WITH_ARG], [
    AC_ARG_WITH([$1],
        [AS_HELP_STRING([--with-$1=auto|yes|no|DIR], [$2 @<:@auto@:>@])],
        [], [with_$1=auto])
    x_ac_dir=
    AS_CASE([$with_$1],
        [auto|yes|no], [],
        [/*], [AS_IF([test -d "$with_$1"], [x_ac_dir=$with_$1],
            [AC_MSG_ERROR([--with-$1: no such directory: $with_$1])])],
        [AC_MSG_ERROR([--with-$1 takes auto, yes, no or an absolute directory, not '$with_$1'])])
])
AC_DEFUN([X_AC_WITH_RESULT], [
    AS_IF([test "x$2" = xyes],
            [x_ac_$1_summary="yes ($3)"],
        [test "x$with_$1" = xno],
            [x_ac_$1_summary="no (switched off)"],
        [test "x$with_$1" = xauto],
            [x_ac_$1_summary="no (not found; $4)"],
        [AC_MSG_ERROR([--with-$1=$with_$1 was asked for and was not found ($4)])])
])

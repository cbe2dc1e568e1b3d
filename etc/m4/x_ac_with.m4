# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_ARG([name], [what it gives])
#   X_AC_WITH_INSIDE([name], [header], [libraries, or nothing])
#   X_AC_WITH_RESULT([name], [yes|no], [summary text], [package hint])
# DESCRIPTION
#   The shared half of every optional part. ARG declares --with-name and sets
#   with_name to auto, yes, no or a directory, and x_ac_dir to that directory.
#   INSIDE does nothing without a directory. With one, the header and one of the
#   libraries must lie in it, or configure ends: a compiler that is given a
#   wrong -I takes the system's copy and says nothing. Sets x_ac_include and
#   x_ac_lib, the folders they were found in.
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
AC_DEFUN([X_AC_WITH_INSIDE], [
    x_ac_include= x_ac_lib=
    AS_IF([test -n "$x_ac_dir"], [
        x_ac_arch=`$CC -print-multiarch 2>/dev/null`
        for x_ac_sub in include ${x_ac_arch:+include/$x_ac_arch}; do
            AS_IF([test -z "$x_ac_include" && test -f "$x_ac_dir/$x_ac_sub/$2"],
                [x_ac_include=$x_ac_dir/$x_ac_sub])
        done
        AS_IF([test -z "$x_ac_include"],
            [AC_MSG_ERROR([--with-$1=$x_ac_dir: no $2 in $x_ac_dir/include])])
        m4_ifnblank([$3], [
        for x_ac_sub in lib lib64 ${x_ac_arch:+lib/$x_ac_arch}; do
            for x_ac_name in $3; do
                AS_IF([test -z "$x_ac_lib" && { test -f "$x_ac_dir/$x_ac_sub/lib$x_ac_name.so" || test -f "$x_ac_dir/$x_ac_sub/lib$x_ac_name.a"; }],
                    [x_ac_lib=$x_ac_dir/$x_ac_sub])
            done
        done
        AS_IF([test -z "$x_ac_lib"],
            [AC_MSG_ERROR([--with-$1=$x_ac_dir: no library of this name in $x_ac_dir/lib, lib64${x_ac_arch:+ or lib/$x_ac_arch}: $3])])])
    ])
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

# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_NCCL
# DESCRIPTION
#   nccl.h. libnccl is opened at run time, never linked. Needs CUDA.
#   Sets NCCL_CPPFLAGS, HAVE_NCCL, RV_NCCL_VERSION.
AC_DEFUN([X_AC_WITH_NCCL], [
    X_AC_WITH_ARG([nccl], [NCCL headers: release that --version names])
    x_ac_have_nccl=no NCCL_CPPFLAGS= x_ac_nccl_version=
    AS_IF([test "x$with_nccl" != xno && test $x_ac_have_cuda = yes], [
        X_AC_WITH_INSIDE([nccl], [nccl.h])
        AS_IF([test -n "$x_ac_dir"], [NCCL_CPPFLAGS="-I$x_ac_include"])
        x_ac_save_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS $NCCL_CPPFLAGS"
        AC_CHECK_HEADER([nccl.h], [x_ac_have_nccl=yes])
        AS_IF([test $x_ac_have_nccl = yes], [
            AC_COMPUTE_INT([x_ac_nccl_num], [NCCL_VERSION_CODE],
                [@%:@include <nccl.h>], [x_ac_nccl_num=0])
            x_ac_nccl_version=$((x_ac_nccl_num / 10000)).$((x_ac_nccl_num % 10000 / 100)).$((x_ac_nccl_num % 100))])
        CPPFLAGS=$x_ac_save_CPPFLAGS
    ])
    X_AC_WITH_RESULT([nccl], [$x_ac_have_nccl], [$x_ac_nccl_version; headers alone, libnccl.so.2 is opened at run time], [nccl.h, and CUDA])
    AS_IF([test $x_ac_have_nccl = yes], [AC_DEFINE([HAVE_NCCL], [1], [NCCL headers are there])])
    AC_DEFINE_UNQUOTED([RV_NCCL_VERSION], ["${x_ac_nccl_version:-none}"], [NCCL release built for])
    AC_SUBST([NCCL_CPPFLAGS])
    AM_CONDITIONAL([HAVE_NCCL], [test $x_ac_have_nccl = yes])
])

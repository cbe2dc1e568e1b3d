# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_CBLAS
# DESCRIPTION
#   cblas.h and a library with cblas_sgemm: the host matrix product.
#   Sets CBLAS_CPPFLAGS, CBLAS_LIBS, HAVE_CBLAS.
AC_DEFUN([X_AC_WITH_CBLAS], [
    X_AC_WITH_ARG([cblas], [CBLAS: host matrix product; else plain C])
    x_ac_have_cblas=no CBLAS_CPPFLAGS= CBLAS_LIBS=
    AS_IF([test "x$with_cblas" != xno], [
        x_ac_save_CPPFLAGS=$CPPFLAGS x_ac_save_LIBS=$LIBS x_ac_save_LDFLAGS=$LDFLAGS
        X_AC_WITH_INSIDE([cblas], [cblas.h], [openblas cblas blas])
        AS_IF([test -n "$x_ac_dir"], [
                CBLAS_CPPFLAGS="-I$x_ac_include"
                x_ac_cblas_L="-L$x_ac_lib -Wl,-rpath,$x_ac_lib"],
            [PKG_CHECK_EXISTS([openblas],
                [CBLAS_CPPFLAGS=`$PKG_CONFIG --cflags-only-I openblas`])
             x_ac_cblas_L=])
        CPPFLAGS="$CPPFLAGS $CBLAS_CPPFLAGS" LDFLAGS="$LDFLAGS $x_ac_cblas_L"
        AC_CHECK_HEADER([cblas.h], [
            LIBS=$x_ac_save_LIBS
            AC_SEARCH_LIBS([cblas_sgemm], [openblas cblas blas],
                [x_ac_have_cblas=yes
                 AS_CASE([$ac_cv_search_cblas_sgemm], ["none required"], [], [CBLAS_LIBS="$x_ac_cblas_L $ac_cv_search_cblas_sgemm"])])])
        CPPFLAGS=$x_ac_save_CPPFLAGS LIBS=$x_ac_save_LIBS LDFLAGS=$x_ac_save_LDFLAGS
    ])
    X_AC_WITH_RESULT([cblas], [$x_ac_have_cblas], [$CBLAS_LIBS], [Debian: libopenblas-dev; plain C instead])
    AS_IF([test $x_ac_have_cblas = yes], [AC_DEFINE([HAVE_CBLAS], [1], [cblas_sgemm is there])])
    AC_SUBST([CBLAS_CPPFLAGS])
    AC_SUBST([CBLAS_LIBS])
    AM_CONDITIONAL([HAVE_CBLAS], [test $x_ac_have_cblas = yes])
])

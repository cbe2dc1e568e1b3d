# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_DEV
# DESCRIPTION
#   Switches for developers and CI (warnings, sanitizers, fuzz targets). cmocka
#   is needed by `make check` alone.
AC_DEFUN([X_AC_DEV], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [warnings are errors (CI)])], [], [enable_werror=no])
    AC_ARG_ENABLE([sanitizers],
        [AS_HELP_STRING([--enable-sanitizers], [AddressSanitizer and UBSan in everything])],
        [], [enable_sanitizers=no])
    AC_ARG_ENABLE([fuzzing],
        [AS_HELP_STRING([--enable-fuzzing], [libFuzzer targets (CC=clang)])], [], [enable_fuzzing=no])
    DEV_CFLAGS="-Wall -Wextra -Wvla -Wformat=2 -fno-common"
    DEV_LDFLAGS=
    AS_IF([test "x$enable_werror" = xyes], [DEV_CFLAGS="$DEV_CFLAGS -Werror"])
    AS_IF([test "x$enable_sanitizers" = xyes],
        [DEV_CFLAGS="$DEV_CFLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
         DEV_LDFLAGS="$DEV_LDFLAGS -fsanitize=address,undefined"])
    AS_IF([test "x$enable_fuzzing" = xyes], [
        x_ac_save_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS -fsanitize=fuzzer-no-link"
        AC_MSG_CHECKING([whether $CC has libFuzzer])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             AC_MSG_ERROR([--enable-fuzzing needs CC=clang with its compiler-rt])])
        CFLAGS=$x_ac_save_CFLAGS
        DEV_CFLAGS="$DEV_CFLAGS -fsanitize=fuzzer-no-link"])
    PKG_CHECK_MODULES([CMOCKA], [cmocka >= 1.1.5],
        [x_ac_cmocka_summary=yes], [x_ac_cmocka_summary="no (make check needs it; Debian: libcmocka-dev)"])
    AM_CONDITIONAL([HAVE_CMOCKA], [test "x$x_ac_cmocka_summary" = xyes])
    AM_CONDITIONAL([ENABLE_FUZZING], [test "x$enable_fuzzing" = xyes])
    AC_SUBST([DEV_CFLAGS])
    AC_SUBST([DEV_LDFLAGS])
])

# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_CURL
#   X_AC_WITH_MICROHTTPD
# DESCRIPTION
#   HTTP of rv-train refserver: libcurl asks, libmicrohttpd serves. Both are
#   opened at run time, by the name that programs linked with them have for
#   them, so that nothing else needs them. Set CURL_CPPFLAGS, HAVE_CURL and
#   RV_CURL_LIBRARY; MICROHTTPD_CPPFLAGS, HAVE_MICROHTTPD and
#   RV_MICROHTTPD_LIBRARY.
# X_AC_OPENED([name], [NAME], [header], [function], [library], [program's body])
AC_DEFUN([X_AC_OPENED], [
    x_ac_have_$1=no x_ac_$1_library= $2[]_CPPFLAGS=
    AS_IF([test "x$with_$1" != xno], [
        X_AC_WITH_INSIDE([$1], [$3], [$5])
        x_ac_opened_libs=-l$5
        AS_IF([test -n "$x_ac_dir"], [
                $2[]_CPPFLAGS="-I$x_ac_include"
                x_ac_opened_libs="-L$x_ac_lib -l$5"],
            [PKG_CHECK_EXISTS([lib$5], [
                $2[]_CPPFLAGS=`$PKG_CONFIG --cflags lib$5`
                x_ac_opened_libs=`$PKG_CONFIG --libs lib$5`])])
        x_ac_save_CPPFLAGS=$CPPFLAGS x_ac_save_LIBS=$LIBS
        CPPFLAGS="$CPPFLAGS $$2_CPPFLAGS" LIBS="$x_ac_opened_libs $LIBS"
        AC_MSG_CHECKING([for $4])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([@%:@include <$3>], [$6])],
            [x_ac_$1_library=`readelf -d conftest$ac_exeext 2>/dev/null | grep NEEDED | tr '@<:@@:>@' '\n\n' | grep '^lib$5' | head -n 1`
            AS_IF([test -n "$x_ac_$1_library"], [x_ac_have_$1=yes])])
        AC_MSG_RESULT([$x_ac_have_$1 $x_ac_$1_library])
        CPPFLAGS=$x_ac_save_CPPFLAGS LIBS=$x_ac_save_LIBS
    ])
    AS_IF([test $x_ac_have_$1 = no], [$2[]_CPPFLAGS=])
    AC_DEFINE_UNQUOTED([RV_$2_LIBRARY], ["${x_ac_$1_library:-none}"], [$5 to open])
    AC_SUBST($2[_CPPFLAGS])
    AM_CONDITIONAL([HAVE_$2], [test $x_ac_have_$1 = yes])
])
AC_DEFUN([X_AC_WITH_CURL], [
    X_AC_WITH_ARG([curl], [libcurl: asks rv-train refserver])
    X_AC_OPENED([curl], [CURL], [curl/curl.h], [curl_easy_perform], [curl],
        [return curl_easy_perform (curl_easy_init ());])
    X_AC_WITH_RESULT([curl], [$x_ac_have_curl], [$x_ac_curl_library is opened at run time], [libcurl; Debian: libcurl4-openssl-dev])
    AS_IF([test $x_ac_have_curl = yes], [AC_DEFINE([HAVE_CURL], [1], [libcurl's header and library are there])])
])
AC_DEFUN([X_AC_WITH_MICROHTTPD], [
    X_AC_WITH_ARG([microhttpd], [libmicrohttpd: rv-train refserver])
    X_AC_OPENED([microhttpd], [MICROHTTPD], [microhttpd.h], [MHD_suspend_connection], [microhttpd],
        [MHD_suspend_connection (0);])
    X_AC_WITH_RESULT([microhttpd], [$x_ac_have_microhttpd], [$x_ac_microhttpd_library is opened at run time], [libmicrohttpd; Debian: libmicrohttpd-dev])
    AS_IF([test $x_ac_have_microhttpd = yes], [AC_DEFINE([HAVE_MICROHTTPD], [1], [libmicrohttpd's header and library are there])])
])

# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_PMIX
# DESCRIPTION
#   pmix.h (>= 4.2). libpmix itself is opened at run time, never linked.
#   Sets PMIX_CPPFLAGS, HAVE_PMIX, RV_PMIX_VERSION.
AC_DEFUN([X_AC_WITH_PMIX], [
    X_AC_WITH_ARG([pmix], [PMIx headers: boot of the ranks])
    x_ac_have_pmix=no PMIX_CPPFLAGS= x_ac_pmix_version=
    AS_IF([test "x$with_pmix" != xno], [
        X_AC_WITH_INSIDE([pmix], [pmix.h])
        AS_IF([test -n "$x_ac_dir"], [PMIX_CPPFLAGS="-I$x_ac_include"],
            [PKG_CHECK_EXISTS([pmix],
                [PMIX_CPPFLAGS=`$PKG_CONFIG --cflags-only-I pmix`])])
        x_ac_save_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $PMIX_CPPFLAGS"
        AC_CHECK_HEADER([pmix.h], [x_ac_have_pmix=yes])
        AS_IF([test $x_ac_have_pmix = yes], [
            AC_COMPUTE_INT([x_ac_pmix_major], [PMIX_VERSION_MAJOR],
                [@%:@include <pmix_version.h>], [x_ac_pmix_major=0])
            AC_COMPUTE_INT([x_ac_pmix_minor], [PMIX_VERSION_MINOR],
                [@%:@include <pmix_version.h>], [x_ac_pmix_minor=0])
            AC_COMPUTE_INT([x_ac_pmix_release], [PMIX_VERSION_RELEASE],
                [@%:@include <pmix_version.h>], [x_ac_pmix_release=0])
            x_ac_pmix_version=$x_ac_pmix_major.$x_ac_pmix_minor.$x_ac_pmix_release
            AS_IF([test $((x_ac_pmix_major * 100 + x_ac_pmix_minor)) -lt 402],
                [x_ac_have_pmix=no])])
        CPPFLAGS=$x_ac_save_CPPFLAGS
    ])
    X_AC_WITH_RESULT([pmix], [$x_ac_have_pmix], [$x_ac_pmix_version], [4.2 or newer; Debian: libpmix-dev])
    AS_IF([test $x_ac_have_pmix = yes], [AC_DEFINE([HAVE_PMIX], [1], [PMIx headers are there])])
    AC_DEFINE_UNQUOTED([RV_PMIX_VERSION], ["${x_ac_pmix_version:-none}"], [PMIx release built for])
    AC_SUBST([PMIX_CPPFLAGS])
    AM_CONDITIONAL([HAVE_PMIX], [test $x_ac_have_pmix = yes])
])

# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_HARDENING
# DESCRIPTION
#   Flags that make a mistake in C harder to use: stack protector and stack
#   clash probes, control flow protection, fortified libc calls where the
#   build optimizes and has no sanitizer, relocations that are read-only and
#   bound at once, position-independent programs. Each is taken if compiler
#   and linker know it without a warning; --disable-hardening takes none.
#   (-Wformat-security is part of X_AC_DEV's -Wformat=2.)
#   Sets HARD_CFLAGS, HARD_LDFLAGS (everything) and HARD_PIE_LDFLAGS (programs;
#   with -shared it would be an error). Needs X_AC_DEV before.

# X_AC_HARD_TRY(COMPILE-FLAG, LINK-FLAG, IF-TAKEN)
AC_DEFUN([X_AC_HARD_TRY], [
    AC_MSG_CHECKING([whether m4_normalize([$1 $2]) works])
    CFLAGS="$x_ac_hard_CFLAGS -Werror $1"
    LDFLAGS="$x_ac_hard_LDFLAGS $2"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdio.h>]], [[puts ("");]])],
        [AC_MSG_RESULT([yes])
         $3],
        [AC_MSG_RESULT([no])])
])

AC_DEFUN([X_AC_HARDENING], [
    AC_ARG_ENABLE([hardening],
        [AS_HELP_STRING([--disable-hardening], [no stack protector, fortified calls, RELRO or PIE])],
        [], [enable_hardening=yes])
    HARD_CFLAGS= HARD_LDFLAGS= HARD_PIE_LDFLAGS=
    AS_IF([test "x$enable_hardening" = xyes], [
        x_ac_hard_CFLAGS=$CFLAGS
        x_ac_hard_LDFLAGS=$LDFLAGS
        m4_foreach_w([x_flag], [-fstack-protector-strong -fstack-clash-protection -fcf-protection],
            [X_AC_HARD_TRY(x_flag, [], [HARD_CFLAGS="$HARD_CFLAGS x_flag"])])
        m4_foreach([x_flag], [[-Wl,-z,relro], [-Wl,-z,now], [-Wl,-z,noexecstack]],
            [X_AC_HARD_TRY([], m4_defn([x_flag]), [HARD_LDFLAGS="$HARD_LDFLAGS m4_defn([x_flag])"])])
        X_AC_HARD_TRY([-fPIE], [-pie],
            [HARD_CFLAGS="$HARD_CFLAGS -fPIE" HARD_PIE_LDFLAGS=-pie])
        # The libc's macros need optimization, and sanitizers their own calls.
        AS_CASE([" $x_ac_hard_CFLAGS/$enable_sanitizers"],
            [*/yes], [],
            [*" -O0"*], [],
            [*" -O"*], [
                x_ac_hard_fortify=
                X_AC_HARD_TRY([-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2], [], [x_ac_hard_fortify=2])
                X_AC_HARD_TRY([-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3], [], [x_ac_hard_fortify=3])
                AS_IF([test -n "$x_ac_hard_fortify"],
                    [HARD_CFLAGS="$HARD_CFLAGS -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$x_ac_hard_fortify"])])
        CFLAGS=$x_ac_hard_CFLAGS
        LDFLAGS=$x_ac_hard_LDFLAGS])
    AC_SUBST([HARD_CFLAGS])
    AC_SUBST([HARD_LDFLAGS])
    AC_SUBST([HARD_PIE_LDFLAGS])
])

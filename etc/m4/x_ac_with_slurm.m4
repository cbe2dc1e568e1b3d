# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_SLURM
# DESCRIPTION
#   slurm/spank.h and libslurm: the plugin and the program rv.
#   Sets SLURM_CPPFLAGS, SLURM_LIBS, HAVE_SLURM, RV_SLURM_VERSION, and
#   RV_SLURM_BINDIR, where Slurm's commands are looked for behind PATH.
AC_DEFUN([X_AC_WITH_SLURM], [
    X_AC_WITH_ARG([slurm], [Slurm headers and libslurm: plugin and rv])
    x_ac_have_slurm=no SLURM_CPPFLAGS= SLURM_LIBS= x_ac_slurm_version=
    AS_IF([test "x$with_slurm" != xno], [
        x_ac_save_CPPFLAGS=$CPPFLAGS x_ac_save_LDFLAGS=$LDFLAGS x_ac_save_LIBS=$LIBS
        X_AC_WITH_INSIDE([slurm], [slurm/spank.h], [slurm])
        AS_IF([test -n "$x_ac_dir"], [
            SLURM_CPPFLAGS="-I$x_ac_include"
            SLURM_LIBS="-L$x_ac_lib -Wl,-rpath,$x_ac_lib"])
        CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS" LDFLAGS="$LDFLAGS $SLURM_LIBS"
        AC_CHECK_HEADER([slurm/spank.h],
            [AC_CHECK_LIB([slurm], [slurm_init_job_desc_msg], [x_ac_have_slurm=yes])])
        AS_IF([test $x_ac_have_slurm = yes], [
            SLURM_LIBS="$SLURM_LIBS -lslurm"
            AC_COMPUTE_INT([x_ac_slurm_num], [SLURM_VERSION_NUMBER],
                [@%:@include <slurm/slurm.h>], [x_ac_slurm_num=0])
            x_ac_slurm_version=`printf '%02d.%02d.%d' $((x_ac_slurm_num >> 16)) $((x_ac_slurm_num >> 8 & 255)) $((x_ac_slurm_num & 255))`])
        CPPFLAGS=$x_ac_save_CPPFLAGS LDFLAGS=$x_ac_save_LDFLAGS LIBS=$x_ac_save_LIBS
    ])
    X_AC_WITH_RESULT([slurm], [$x_ac_have_slurm], [$x_ac_slurm_version], [Debian: libslurm-dev; without it no plugin and no rv])
    AS_IF([test -d "$with_slurm/bin"], [x_ac_slurm_bin=$with_slurm/bin], [
        AC_PATH_PROG([x_ac_sbatch], [sbatch], [/usr/bin/sbatch])
        x_ac_slurm_bin=`dirname "$x_ac_sbatch"`])
    AC_DEFINE_UNQUOTED([RV_SLURM_BINDIR], ["$x_ac_slurm_bin"], [folder of Slurm's commands])
    AC_DEFINE_UNQUOTED([RV_SLURM_VERSION], ["${x_ac_slurm_version:-none}"], [Slurm release built for])
    AC_SUBST([SLURM_CPPFLAGS])
    AC_SUBST([SLURM_LIBS])
    AM_CONDITIONAL([HAVE_SLURM], [test $x_ac_have_slurm = yes])
])

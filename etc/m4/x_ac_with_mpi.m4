# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_MPI
# DESCRIPTION
#   An MPI library, through its mpicc: for libtrain's backend mpi, which opens
#   it at run time by the name that programs linked with it have for it, and for
#   tests. Sets MPICC, MPI_CPPFLAGS, MPI_LIBS, HAVE_MPI, RV_MPI_LIBRARY.
AC_DEFUN([X_AC_WITH_MPI], [
    X_AC_WITH_ARG([mpi], [MPI: group backend mpi])
    x_ac_have_mpi=no x_ac_mpi_library= MPI_CPPFLAGS= MPI_LIBS=
    AS_IF([test "x$with_mpi" != xno], [
        AS_IF([test -n "$x_ac_dir"], [x_ac_mpi_path=$x_ac_dir/bin], [x_ac_mpi_path=$PATH])
        AC_PATH_PROG([MPICC], [mpicc], [], [$x_ac_mpi_path])
        AS_IF([test -n "$MPICC"], [
            for x_ac_word in `$MPICC -show 2>/dev/null`; do
                AS_CASE([$x_ac_word],
                    [-I*], [MPI_CPPFLAGS="$MPI_CPPFLAGS $x_ac_word"],
                    [-L*|-l*|-Wl,*], [MPI_LIBS="$MPI_LIBS $x_ac_word"])
            done
            x_ac_save_CPPFLAGS=$CPPFLAGS x_ac_save_LIBS=$LIBS
            CPPFLAGS="$CPPFLAGS $MPI_CPPFLAGS" LIBS="$MPI_LIBS $LIBS"
            AC_MSG_CHECKING([for MPI_Iallreduce])
            AC_LINK_IFELSE([AC_LANG_PROGRAM([@%:@include <mpi.h>],
                    [MPI_Request r; return MPI_Iallreduce (MPI_IN_PLACE, 0, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &r);])],
                [x_ac_mpi_library=`readelf -d conftest$ac_exeext 2>/dev/null | grep NEEDED | tr '@<:@@:>@' '\n\n' | grep '^libmpi' | head -n 1`
                AS_IF([test -n "$x_ac_mpi_library"], [x_ac_have_mpi=yes])])
            AC_MSG_RESULT([$x_ac_have_mpi $x_ac_mpi_library])
            CPPFLAGS=$x_ac_save_CPPFLAGS LIBS=$x_ac_save_LIBS])
    ])
    X_AC_WITH_RESULT([mpi], [$x_ac_have_mpi], [$MPICC; $x_ac_mpi_library is opened at run time], [mpicc; Debian: libopenmpi-dev])
    AC_DEFINE_UNQUOTED([RV_MPI_LIBRARY], ["${x_ac_mpi_library:-none}"], [MPI library to open])
    AS_IF([test $x_ac_have_mpi = yes], [AC_DEFINE([HAVE_MPI], [1], [MPI headers and library are there])],
        [MPI_CPPFLAGS= MPI_LIBS=])
    AC_SUBST([MPI_CPPFLAGS])
    AC_SUBST([MPI_LIBS])
    AM_CONDITIONAL([HAVE_MPI], [test $x_ac_have_mpi = yes])
])

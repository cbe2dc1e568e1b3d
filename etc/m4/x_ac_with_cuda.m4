# SPDX-License-Identifier: Apache-2.0
# SYNOPSIS
#   X_AC_WITH_CUDA
# DESCRIPTION
#   nvcc, cuda_runtime.h and the static cudart. A program linked with them runs
#   on a machine without driver or GPU: the backend is chosen at run time.
#   Sets NVCC, NVCCFLAGS, CUDA_CPPFLAGS, CUDA_LIBS, HAVE_CUDA, RV_CUDA_VERSION.
AC_DEFUN([X_AC_WITH_CUDA], [
    X_AC_WITH_ARG([cuda], [CUDA toolkit: GPU backend and kernels])
    AC_ARG_VAR([NVCCFLAGS], [flags of nvcc, -gencode among them])
    x_ac_have_cuda=no NVCC= CUDA_CPPFLAGS= CUDA_LIBS= x_ac_cuda_version=
    AS_IF([test "x$with_cuda" != xno], [
        AS_IF([test -n "$x_ac_dir"], [x_ac_cuda_path=$x_ac_dir/bin],
            [x_ac_cuda_path=$PATH:/usr/local/cuda/bin])
        AC_PATH_PROG([NVCC], [nvcc], [], [$x_ac_cuda_path])
        AS_IF([test -n "$NVCC"], [
            x_ac_cuda_root=`AS_DIRNAME(["$NVCC"])`/..
            x_ac_cuda_lib=$x_ac_cuda_root/lib64
            AS_IF([test -d "$x_ac_cuda_lib"], [], [x_ac_cuda_lib=$x_ac_cuda_root/lib])
            CUDA_CPPFLAGS="-I$x_ac_cuda_root/include"
            CUDA_LIBS="-L$x_ac_cuda_lib -lcudart_static -lrt -lpthread -ldl"
            x_ac_save_CPPFLAGS=$CPPFLAGS x_ac_save_LIBS=$LIBS
            CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" LIBS="$CUDA_LIBS $LIBS"
            AC_MSG_CHECKING([for the static CUDA runtime])
            AC_LINK_IFELSE([AC_LANG_PROGRAM([@%:@include <cuda_runtime.h>],
                    [int n; return cudaGetDeviceCount (&n);])],
                [x_ac_have_cuda=yes])
            AC_MSG_RESULT([$x_ac_have_cuda])
            AC_COMPUTE_INT([x_ac_cuda_num], [CUDART_VERSION],
                [@%:@include <cuda_runtime.h>], [x_ac_cuda_num=0])
            x_ac_cuda_version=$((x_ac_cuda_num / 1000)).$((x_ac_cuda_num % 1000 / 10))
            CPPFLAGS=$x_ac_save_CPPFLAGS LIBS=$x_ac_save_LIBS])
        AS_IF([test "x$NVCCFLAGS" = x],
            [NVCCFLAGS="-O3 -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_90,code=compute_90"])
    ])
    X_AC_WITH_RESULT([cuda], [$x_ac_have_cuda], [$x_ac_cuda_version, $NVCC], [nvcc and cudart_static])
    AS_IF([test $x_ac_have_cuda = yes], [AC_DEFINE([HAVE_CUDA], [1], [the CUDA backend is built])],
        [CUDA_CPPFLAGS= CUDA_LIBS= x_ac_cuda_version=])
    AC_DEFINE_UNQUOTED([RV_CUDA_VERSION], ["${x_ac_cuda_version:-none}"], [CUDA release built for])
    AC_SUBST([CUDA_CPPFLAGS])
    AC_SUBST([CUDA_LIBS])
    AM_CONDITIONAL([HAVE_CUDA], [test $x_ac_have_cuda = yes])
])

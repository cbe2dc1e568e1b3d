/* SPDX-License-Identifier: Apache-2.0
 * pmix_hang.c - a libpmix.so.2 whose PMIx_Init never returns, as that of some
 * releases does (openpmix/openpmix#3645) */
#include <unistd.h>

int PMIx_Init (void)
{
    for (;;)
        pause ();
}

#define NEVER_CALLED(name)                                                     \
    int name (void)                                                            \
    {                                                                          \
        return -1;                                                             \
    }

NEVER_CALLED (PMIx_Finalize)
NEVER_CALLED (PMIx_Abort)
NEVER_CALLED (PMIx_Put)
NEVER_CALLED (PMIx_Commit)
NEVER_CALLED (PMIx_Fence)
NEVER_CALLED (PMIx_Get)

const char *PMIx_Error_string (int status)
{
    (void)status;
    return "made up";
}
